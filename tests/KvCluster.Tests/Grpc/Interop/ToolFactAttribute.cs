namespace KvCluster.Tests.Grpc.Interop;

/// <summary>A test that runs a program of the machine; skipped, by its name, where PATH has no such program.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class ToolFactAttribute : FactAttribute
{
    public ToolFactAttribute(string program)
    {
        var folders = (Environment.GetEnvironmentVariable("PATH") ?? "").Split(Path.PathSeparator, StringSplitOptions.RemoveEmptyEntries);
        if (!folders.Any(folder => File.Exists(Path.Combine(folder, program))))
            Skip = $"'{program}' is not in PATH";
    }
}
