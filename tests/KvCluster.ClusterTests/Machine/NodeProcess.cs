using System.Collections.Concurrent;
using System.Diagnostics;
using System.Globalization;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>A node as a process: the built kv-node, which a test starts, kills, stops and resumes.</summary>
internal sealed class NodeProcess(int node, string data, IReadOnlyList<string> arguments, Network network) : IAsyncDisposable
{
    // With a higher priority than clients and everything else, where that is allowed. A node that gets no processor for the length of a lease is
    // rightly deposed, and tests of a certain leader would fail.
    private static readonly string[] First = ["nice", "-n", "-10"];

    private readonly ConcurrentQueue<string> _log = new();
    private Process? _process;

    /// <summary>The program itself, for commands other than run.</summary>
    public static string Program { get; } = Tools.Built("kv-node");

    public int Node => node;

    public string Data => data;

    public int Id => _process!.Id;

    public bool IsRunning => _process is { HasExited: false };

    /// <summary>Whether it was started, even if it does not run any more.</summary>
    public bool WasStarted => _process is not null;

    /// <summary>Its output over all its starts.</summary>
    public IReadOnlyCollection<string> Log => _log;

    /// <summary>A command with arguments that starts the program given to it. It makes the next start differ from an ordinary one.</summary>
    public IReadOnlyList<string> Wrapper { get; set; } = [];

    /// <summary>Options of the program in addition to those of every node.</summary>
    public IReadOnlyList<string> Options { get; set; } = [];

    /// <summary>The coordinator that the next start uses, instead of that of every node. Not through a relay.</summary>
    public string? Coordinator { get; set; }

    /// <summary>What the next start runs: the program itself, or another version of it.</summary>
    public string Executable { get; set; } = Program;

    /// <summary>The options of a start as lines of a settings file.</summary>
    public IEnumerable<string> Settings => CommandWith().Skip(1).Chunk(2).Select(static option => $"{option[0][2..]}: \"{option[1]}\"");

    /// <summary>The arguments that start the node's program.</summary>
    /// <param name="option">An option with a different value, or "".</param>
    public IReadOnlyList<string> CommandWith(string option = "", string value = "")
    {
        string[] command = ["run", "--node", node.ToString(CultureInfo.InvariantCulture), "--data", data, .. arguments, .. Options];
        if (Coordinator is not null)
            command[Array.IndexOf(command, "--coordinator") + 1] = Coordinator;
        if (option.Length > 0)
            command[Array.IndexOf(command, option) + 1] = value;
        return command;
    }

    public void Start()
    {
        string[] command = [.. First, .. Wrapper, Executable, .. CommandWith(), "--serve-admin", "--until-stdin-ends"];
        _process = network.Start(node, new ProcessStartInfo(command[0], command[1..])
        {
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
            RedirectStandardError = true,
        });
        _process.OutputDataReceived += (_, line) => Keep(line.Data);
        _process.ErrorDataReceived += (_, line) => Keep(line.Data);
        _process.BeginOutputReadLine();
        _process.BeginErrorReadLine();
    }

    /// <summary>Kills it as a crash or the system's out-of-memory killer does.</summary>
    public async Task KillAsync()
    {
        _process!.Kill();
        await _process.WaitForExitAsync();
    }

    /// <summary>Stops it as a service manager does. Returns its exit code.</summary>
    public async Task<int> StopAsync()
    {
        Signals.End(Id);
        return await ExitAsync();
    }

    /// <summary>Waits until it exits by itself.</summary>
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
