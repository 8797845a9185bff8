using System.ComponentModel;
using System.Diagnostics;

namespace KvCluster.Tests.Grpc.Interop;

/// <summary>
/// A Python that has grpcio (Debian: python3-grpcio python3-protobuf). These packages belong to the system's Python, which need not be the first in
/// PATH.
/// </summary>
internal static class Python
{
    private static readonly string[] Programs = ["/usr/bin/python3", "python3"];
    private static readonly Lazy<string?> Found = new(() => Programs.FirstOrDefault(HasGrpcio));

    /// <summary>Why client.py cannot run here, or null if it can.</summary>
    public static string? SkipReason => Found.Value is null ? "No python3 here has grpcio and protobuf." : null;

    public static Process Start(params string[] arguments) => Start(Found.Value!, arguments);

    private static bool HasGrpcio(string program)
    {
        try
        {
            using var python = Start(program, ["-c", "import grpc, google.protobuf"]);
            var errors = python.StandardError.ReadToEndAsync();
            python.WaitForExit();
            errors.Wait();
            return python.ExitCode == 0;
        }
        catch (Win32Exception)
        {
            return false; // The program does not exist.
        }
    }

    private static Process Start(string program, string[] arguments) => Process.Start(new ProcessStartInfo(program, arguments)
    {
        RedirectStandardOutput = true,
        RedirectStandardError = true,
        Environment = { ["PYTHONDONTWRITEBYTECODE"] = "1" },
    })!;
}

/// <summary>A test that needs Python's grpcio. Where it is missing, the test is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class GrpcioTheoryAttribute : TheoryAttribute
{
    public GrpcioTheoryAttribute() => Skip = Python.SkipReason;
}
