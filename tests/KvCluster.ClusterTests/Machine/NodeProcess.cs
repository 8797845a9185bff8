using System.Collections.Concurrent;
using System.Diagnostics;
using System.Globalization;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>A node as a process: the built kv-node, started, killed, stopped and resumed as a test likes.</summary>
internal sealed class NodeProcess(int node, string data, IReadOnlyList<string> arguments, Network network) : IAsyncDisposable
{
    // Before clients and whatever else the machine does, where that is allowed: a node without a processor for the length of a lease is rightly deposed,
    // and a test that says who leads would fail by it.
    private static readonly string[] First = ["nice", "-n", "-10"];

    private readonly ConcurrentQueue<string> _log = new();
    private Process? _process;

    /// <summary>The program itself, for commands other than run.</summary>
    public static string Program { get; } = Tools.Built("kv-node");

    public int Node => node;

    public string Data => data;

    public int Id => _process!.Id;

    public bool IsRunning => _process is { HasExited: false };

    /// <summary>What it printed, over all its starts.</summary>
    public IReadOnlyCollection<string> Log => _log;

    /// <summary>A command, with its arguments, that starts the program it is given: how the next start differs from an ordinary one.</summary>
    public IReadOnlyList<string> Wrapper { get; set; } = [];

    /// <summary>Options of the program besides those that every node has.</summary>
    public IReadOnlyList<string> Options { get; set; } = [];

    /// <summary>The arguments of the program that runs the node.</summary>
    /// <param name="option">One that is to have another value; "": none.</param>
    public IReadOnlyList<string> CommandWith(string option = "", string value = "")
    {
        string[] command = ["run", "--node", node.ToString(CultureInfo.InvariantCulture), "--data", data, .. arguments, .. Options];
        if (option.Length > 0)
            command[Array.IndexOf(command, option) + 1] = value;
        return command;
    }

    public void Start()
    {
        string[] command = [.. First, .. Wrapper, Program, .. CommandWith(), "--until-stdin-ends"];
        _process = Process.Start(new ProcessStartInfo(command[0], command[1..])
        {
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
            RedirectStandardError = true,
        })!;
        network.SetProcess(node, _process.Id);
        _process.OutputDataReceived += (_, line) => Keep(line.Data);
        _process.ErrorDataReceived += (_, line) => Keep(line.Data);
        _process.BeginOutputReadLine();
        _process.BeginErrorReadLine();
    }

    /// <summary>As a crash or the system's out-of-memory killer does.</summary>
    public async Task KillAsync()
    {
        _process!.Kill();
        await _process.WaitForExitAsync();
    }

    /// <summary>As a service manager does; its exit code.</summary>
    public async Task<int> StopAsync()
    {
        Signals.End(Id);
        return await ExitAsync();
    }

    /// <summary>Waits until it ends by itself.</summary>
    public async Task<int> ExitAsync()
    {
        await _process!.WaitForExitAsync().WaitAsync(Eventually.Limit);
        return _process.ExitCode;
    }

    public void Pause() => Signals.Pause(Id);

    public void Resume() => Signals.Resume(Id);

    public async ValueTask DisposeAsync()
    {
        if (_process is null)
            return;
        if (!_process.HasExited)
            await KillAsync();
        _process.Dispose();
    }

    private void Keep(string? line)
    {
        if (line is not null)
            _log.Enqueue(line);
    }
}
