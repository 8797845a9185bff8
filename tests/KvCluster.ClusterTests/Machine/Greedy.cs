using System.Diagnostics;
using System.Globalization;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>A caller that requests much and reads nothing: tests/interop/greedy.py, with Python's grpcio.</summary>
internal sealed class Greedy : IAsyncDisposable
{
    private const string Python = "/usr/bin/python3";

    // Its loads take seconds to tens of seconds on an idle machine.
    private static readonly TimeSpan Limit = 3 * Eventually.Limit;

    private readonly Process _process;

    private Greedy(Process process) => _process = process;

    /// <summary>Why it is not available here, or null if it is.</summary>
    public static string? SkipReason { get; } = Find();

    public bool IsRunning => !_process.HasExited;

    /// <summary>Returns when its load is established.</summary>
    public static Task<Greedy> StartAsync(string kind, int port, int count) => StartAsync("greedy.py", kind, port, count);

    /// <summary>The same with another program of that folder, whose arguments and report have the same form.</summary>
    public static async Task<Greedy> StartAsync(string program, string kind, int port, int count)
    {
        var process = Process.Start(new ProcessStartInfo(
            Python, [Path.Combine(Tools.Repository(), "tests", "interop", program),
                kind, port.ToString(CultureInfo.InvariantCulture), count.ToString(CultureInfo.InvariantCulture)])
        {
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
        })!;
        var greedy = new Greedy(process);
        var line = await process.StandardOutput.ReadLineAsync().WaitAsync(Limit);
        Assert.Equal("ready", line);
        return greedy;
    }

    /// <summary>Makes it read everything, and returns its report.</summary>
    public async Task<string> DrainAsync()
    {
        _process.StandardInput.Close();
        var told = await _process.StandardOutput.ReadToEndAsync().WaitAsync(Limit);
        await _process.WaitForExitAsync();
        return told.Trim();
    }

    public async ValueTask DisposeAsync()
    {
        if (!_process.HasExited)
            _process.Kill();
        await _process.WaitForExitAsync();
        _process.Dispose();
    }

    private static string? Find()
    {
        if (!EtcdProcesses.AreAvailable)
            return "neither in PATH nor among the shared tools: etcd, etcdctl";
        if (!File.Exists(Python))
            return $"there is no {Python}";
        using var process = Process.Start(new ProcessStartInfo(Python, ["-c", "import grpc"]) { RedirectStandardError = true })!;
        process.StandardError.ReadToEnd();
        process.WaitForExit();
        return process.ExitCode == 0 ? null : $"{Python} has no grpcio";
    }
}

/// <summary>A test with a greedy caller. Without a Python with grpcio, or for a long test without KV_LONG=1, it is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class GreedyTheoryAttribute : TheoryAttribute
{
    public GreedyTheoryAttribute(bool isLong = false) =>
        Skip = Greedy.SkipReason ?? (isLong && Environment.GetEnvironmentVariable("KV_LONG") != "1" ? "takes long; runs with KV_LONG=1" : null);
}
