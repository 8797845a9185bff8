using System.Diagnostics;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>An operator's shell: `kv`, `kv-node` and `etcdctl` with the environment that the runbook describes. One command at a time.</summary>
/// <param name="endpoint">The node or router that `kv` asks.</param>
/// <param name="cluster">The cluster.</param>
/// <param name="node">The node in trouble.</param>
internal sealed class OperatorShell(string endpoint, FaultCluster cluster, int node)
{
    private static string SearchPath { get; } = string.Join(
        Path.PathSeparator,
        new[] { Tools.Built("kv", "KvCluster.Cli"), NodeProcess.Program, Tools.Find("etcdctl") }.Select(Path.GetDirectoryName).Append(Environment.GetEnvironmentVariable("PATH")));

    /// <summary>Executes one line.</summary>
    public async Task<ShellAnswer> RunAsync(string line)
    {
        var begun = Stopwatch.GetTimestamp();
        using var shell = Process.Start(new ProcessStartInfo("/bin/bash", ["-c", line])
        {
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
            RedirectStandardError = true,
            Environment = { ["PATH"] = SearchPath, ["KV_ENDPOINT"] = endpoint, ["ETCDCTL_ENDPOINTS"] = string.Join(',', cluster.Etcd.Endpoints), ["DATA"] = cluster.Node(node).Data },
        })!;
        shell.StandardInput.Close();
        var (output, error) = (shell.StandardOutput.ReadToEndAsync(), shell.StandardError.ReadToEndAsync());
        await shell.WaitForExitAsync().WaitAsync(Eventually.Limit);
        return new ShellAnswer(line, shell.ExitCode, await output, await error, Stopwatch.GetElapsedTime(begun));
    }
}

/// <summary>How a command ended.</summary>
/// <param name="Line">The command.</param>
/// <param name="ExitCode">Its exit code.</param>
/// <param name="Output">What it printed.</param>
/// <param name="Error">What it printed on standard error.</param>
/// <param name="Took">How long it ran.</param>
internal sealed record ShellAnswer(string Line, int ExitCode, string Output, string Error, TimeSpan Took);
