using System.ComponentModel;
using System.Diagnostics;

namespace KvCluster.Tests.Grpc.Interop;

/// <summary>
/// The scripts of tests/interop with the packages that they need, installed under artifacts/ on first use. Where that fails, on a machine without
/// node or without the network, tests are skipped with the reason.
/// </summary>
internal static class NodeScripts
{
    private static readonly string[] Files = ["package.json", "package-lock.json", "echo.proto", "echo.js", "client.js", "server.js"];
    private static readonly Lazy<(string? Folder, string? SkipReason)> Installed = new(Install);

    /// <summary>Why the scripts cannot run here, or null if they can.</summary>
    public static string? SkipReason => Installed.Value.SkipReason;

    public static Process Start(string script, params string[] arguments) => Start("node", Installed.Value.Folder!, [script, .. arguments]);

    private static (string?, string?) Install()
    {
        var folder = Path.Combine(House.House.Root, "artifacts", "interop");
        try
        {
            Directory.CreateDirectory(folder);
            // Concurrent test runs of one clone install one after the other.
            using var turn = new FileStream(Path.Combine(folder, "lock"), FileMode.OpenOrCreate, FileAccess.ReadWrite, FileShare.None);
            foreach (var file in Files)
                File.Copy(Path.Combine(House.House.Root, "tests", "interop", file), Path.Combine(folder, file), overwrite: true);
            using (var node = Start("node", folder, ["--version"]))
                node.WaitForExit();
            var marker = Path.Combine(folder, "installed");
            var wanted = File.ReadAllText(Path.Combine(folder, "package-lock.json"));
            if (File.Exists(marker) && File.ReadAllText(marker) == wanted)
                return (folder, null);
            using var npm = Start("npm", folder, ["ci", "--no-audit", "--no-fund", "--fetch-retries=0", "--fetch-timeout=20000"]);
            npm.StandardInput.Close();
            var output = npm.StandardOutput.ReadToEndAsync();
            var errors = npm.StandardError.ReadToEndAsync();
            if (!npm.WaitForExit(TimeSpan.FromMinutes(2)))
                npm.Kill(entireProcessTree: true);
            npm.WaitForExit();
            if (npm.ExitCode != 0)
                return (null, $"npm could not install @grpc/grpc-js: {errors.Result.Trim()} {output.Result.Trim()}");
            File.WriteAllText(marker, wanted);
            return (folder, null);
        }
        catch (Exception failure) when (failure is Win32Exception or IOException or UnauthorizedAccessException)
        {
            return (null, $"node and npm cannot be used here: {failure.Message}");
        }
    }

    private static Process Start(string program, string folder, string[] arguments) => Process.Start(new ProcessStartInfo(program, arguments)
    {
        WorkingDirectory = folder,
        RedirectStandardInput = true,
        RedirectStandardOutput = true,
        RedirectStandardError = true,
    })!;
}

/// <summary>A test that needs node and the packages of tests/interop. Where they are missing, the test is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class NodeFactAttribute : FactAttribute
{
    public NodeFactAttribute() => Skip = NodeScripts.SkipReason;
}

/// <inheritdoc cref="NodeFactAttribute"/>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class NodeTheoryAttribute : TheoryAttribute
{
    public NodeTheoryAttribute() => Skip = NodeScripts.SkipReason;
}
