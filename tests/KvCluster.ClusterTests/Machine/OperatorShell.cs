using System.Diagnostics;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>An operator's shell: `kv`, `kv-node` and `etcdctl` with the variables that the runbook describes. Each command is a process of its own.</summary>
/// <param name="variables">The variables, by name.</param>
internal sealed class OperatorShell(IReadOnlyDictionary<string, string> variables)
{
    /// <param name="endpoint">The node or router that `kv` asks.</param>
    /// <param name="cluster">The cluster.</param>
    /// <param name="node">The node in trouble.</param>
    public OperatorShell(string endpoint, FaultCluster cluster, int node)
        : this(new Dictionary<string, string>
        {
            ["KV_ENDPOINT"] = endpoint, ["ETCDCTL_ENDPOINTS"] = string.Join(',', cluster.Etcd.Endpoints), ["DATA"] = cluster.Node(node).Data
        })
    {
    }

    private static string SearchPath { get; } = string.Join(
        Path.PathSeparator,
        new[] { Tools.Built("kv", "KvCluster.Cli"), NodeProcess.Program, Tools.Find("etcdctl") }.Select(Path.GetDirectoryName)
            .Append(Environment.GetEnvironmentVariable("PATH")));

    /// <summary>The same shell with a further variable.</summary>
    public OperatorShell With(string name, string value) => new(new Dictionary<string, string>(variables) { [name] = value });

    /// <summary>Executes one line.</summary>
    public async Task<ShellAnswer> RunAsync(string line)
    {
        var begun = Stopwatch.GetTimestamp();
        var start = new ProcessStartInfo("/bin/bash", ["-c", line])
        {
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
            RedirectStandardError = true,
            Environment = { ["PATH"] = SearchPath },
        };
        foreach (var (name, value) in variables)
            start.Environment[name] = value;
        using var shell = Process.Start(start)!;
        shell.StandardInput.Close();
        var (output, error) = (shell.StandardOutput.ReadToEndAsync(), shell.StandardError.ReadToEndAsync());
        // Some lines wait for the work of nodes.
        await shell.WaitForExitAsync().WaitAsync(3 * Eventually.Limit);
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
