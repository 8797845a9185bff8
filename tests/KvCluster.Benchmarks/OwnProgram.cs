using KvCluster.Processes;

namespace KvCluster.Benchmarks;

/// <summary>This program, started again as one that measures or is measured.</summary>
internal static class OwnProgram
{
    /// <summary>Runs it until it exits.</summary>
    public static Task<(int ExitCode, string Output, string Error)> RunAsync(params string[] arguments) => Tools.RunAsync(
        Environment.ProcessPath!, Path.GetFileNameWithoutExtension(Environment.ProcessPath) == "dotnet"
            ? [Path.Combine(AppContext.BaseDirectory, "KvCluster.Benchmarks.dll"), .. arguments] : arguments);
}
