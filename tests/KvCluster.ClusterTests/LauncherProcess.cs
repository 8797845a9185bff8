using System.Collections.Concurrent;
using System.Diagnostics;
using System.Globalization;
using KvCluster.Processes;

namespace KvCluster.ClusterTests;

/// <summary>The launcher as a person starts it: the built program, with its own ports and directory. Disposing stops it in any case.</summary>
internal sealed class LauncherProcess : IAsyncDisposable
{
    /// <summary>The launcher itself aborts a stop that takes longer.</summary>
    public static readonly TimeSpan StopTimeMax = TimeSpan.FromSeconds(5);

    private readonly Process _process;
    private readonly ConcurrentQueue<string> _lines = new();
    private readonly ConcurrentQueue<string> _errors = new();
    private readonly TaskCompletionSource _ready = new(TaskCreationOptions.RunContinuationsAsynchronously);

    private LauncherProcess(string folder, int port, params IEnumerable<string> arguments)
    {
        Folder = folder;
        Port = port;
        // Ports of its twenty on which no node of a cluster of three listens.
        string[] always = ["--data", folder, "--port", port.ToString(CultureInfo.InvariantCulture), "--console-port", ConsolePortOf(port)
            .ToString(CultureInfo.InvariantCulture)];
        _process = Process.Start(new ProcessStartInfo(Tools.Built("kv-local"), [.. always, .. arguments])
        {
            RedirectStandardOutput = true,
            RedirectStandardError = true,
        })!;
        _process.OutputDataReceived += (_, line) =>
        {
            if (line.Data is { } text)
                _lines.Enqueue(text);
            if (line.Data?.StartsWith("Ctrl-C", StringComparison.Ordinal) == true)
                _ready.TrySetResult();
        };
        _process.ErrorDataReceived += (_, line) =>
        {
            if (line.Data is { } text)
                _errors.Enqueue(text);
        };
        _process.BeginOutputReadLine();
        _process.BeginErrorReadLine();
    }

    public string Folder { get; }

    public int Port { get; }

    /// <summary>The router's console. With --processes, node N has one on the N-th port after it.</summary>
    public int ConsolePort => ConsolePortOf(Port);

    public string RouterAddress => $"http://127.0.0.1:{Port}";

    /// <summary>The address with --tls.</summary>
    public string SecureRouterAddress => $"https://127.0.0.1:{Port}";

    public int Id => _process.Id;

    /// <summary>Lines on standard output so far.</summary>
    public IReadOnlyCollection<string> Lines => _lines;

    /// <summary>Lines on standard error so far.</summary>
    public IReadOnlyCollection<string> Errors => _errors;

    /// <summary>Starts a launcher that is expected to end by itself. Returns its exit code.</summary>
    public static async Task<(int ExitCode, string Error)> RunToEndAsync(string folder, int port, params string[] arguments)
    {
        await using var launcher = new LauncherProcess(folder, port, arguments);
        await launcher.WaitForExitAsync();
        return (launcher._process.ExitCode, string.Join('\n', launcher._errors));
    }

    /// <summary>Starts a cluster and waits until it serves.</summary>
    public static async Task<LauncherProcess> StartAsync(string folder, int port, params string[] arguments)
    {
        var launcher = new LauncherProcess(folder, port, arguments);
        try
        {
            var ended = launcher._process.WaitForExitAsync();
            if (await Task.WhenAny(launcher._ready.Task, ended).WaitAsync(3 * Eventually.Limit) == ended)
                throw new InvalidOperationException($"The launcher ended with code {launcher._process.ExitCode}: {string.Join('\n', launcher._errors)}");
            return launcher;
        }
        catch
        {
            await launcher.DisposeAsync();
            throw;
        }
    }

    /// <summary>The process id that the launcher wrote for a node or the router.</summary>
    public int PidOf(string name) => int.Parse(File.ReadAllText(Path.Combine(Folder, "run", name + ".pid")), CultureInfo.InvariantCulture);

    public void KillHard() => _process.Kill();

    /// <summary>Asks the launcher to stop, as Ctrl-C and a service manager do. Returns how long it took.</summary>
    public async Task<(TimeSpan Took, int ExitCode)> StopAsync()
    {
        var started = Stopwatch.GetTimestamp();
        Signals.End(_process.Id);
        await WaitForExitAsync();
        return (Stopwatch.GetElapsedTime(started), _process.ExitCode);
    }

    public Task WaitForExitAsync() => _process.WaitForExitAsync().WaitAsync(Eventually.Limit);

    public async ValueTask DisposeAsync()
    {
        if (!_process.HasExited)
        {
            _process.Kill();
            await _process.WaitForExitAsync();
        }

        _process.Dispose();
        // The children follow, because each holds a pipe that ends with the launcher. Until then they write into the directory, which is removed next.
        var children = Children();
        await Eventually.TrueAsync(() => !children.Any(IsAlive), "the launcher's children have ended");
    }

    public static bool IsAlive(int process)
    {
        try
        {
            using var found = Process.GetProcessById(process);
            return !found.HasExited && !IsZombie(process);
        }
        catch (ArgumentException)
        {
            return false;
        }
    }

    // It has ended, and nobody has asked how, as after the end of its launcher in a container without an init.
    private static bool IsZombie(int process)
    {
        try
        {
            var path = $"/proc/{process}/stat";
            return File.Exists(path) && File.ReadAllText(path) is var stat && stat[stat.LastIndexOf(')') + 2] is 'Z' or 'X';
        }
        catch (IOException)
        {
            // It has gone meanwhile.
            return true;
        }
    }

    // Those that it has not stopped.
    private List<int> Children()
    {
        var folder = Path.Combine(Folder, "run");
        return Directory.Exists(folder)
            ? [.. Directory.GetFiles(folder, "*.pid").Select(static file => int.Parse(File.ReadAllText(file), CultureInfo.InvariantCulture))]
            : [];
    }

    private static int ConsolePortOf(int port) => port + 14;
}
