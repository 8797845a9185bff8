using System.Collections.Concurrent;
using System.Diagnostics;
using System.Globalization;

namespace KvCluster.ClusterTests.History;

/// <summary>
/// Client processes for one cluster after the other. They are kept, because starting them costs more than most histories. Used by one test at a time.
/// They end with this process.
/// </summary>
internal sealed class HistoryProcesses : IAsyncDisposable
{
    public const int Count = 5;

    private const int Workers = 4;

    // The pause of every worker after each operation.
    private const int PauseMs = 8;

    private static readonly ConcurrentBag<HistoryProcesses> Resting = [];

    private readonly Process[] _processes;
    private readonly int[] _changes = new int[Count];
    private readonly ConcurrentDictionary<string, bool> _written = new();
    private readonly ConcurrentQueue<string> _contradictions = new();

    private HistoryProcesses() => _processes = [.. Enumerable.Range(0, Count).Select(Start)];

    /// <summary>The number of acknowledged changes so far.</summary>
    public int Changes => _changes.Sum();

    /// <summary>Contradictions within answers, for the histories whose files are complete.</summary>
    public IReadOnlyCollection<string> Contradictions => _contradictions;

    /// <summary>Idle processes, or new ones.</summary>
    public static HistoryProcesses Take() => Resting.TryTake(out var resting) ? resting : new HistoryProcesses();

    /// <summary>Makes them available to another test, when every history that they began is complete.</summary>
    public void GiveBack() => Resting.Add(this);

    /// <summary>Sends a line to each process.</summary>
    public void Tell(Func<int, string> line)
    {
        for (var client = 0; client < Count; client++)
            _processes[client].StandardInput.WriteLine(line(client));
    }

    /// <summary>Whether all have reported their file as complete.</summary>
    public bool HaveWritten(Func<int, string> file) => Enumerable.Range(0, Count).All(client => _written.ContainsKey(file(client)));

    public async ValueTask DisposeAsync()
    {
        foreach (var process in _processes)
        {
            process.Kill();
            await process.WaitForExitAsync();
            process.Dispose();
        }
    }

    private Process Start(int client)
    {
        string[] arguments = [typeof(HistoryProcesses).Assembly.Location, "history", Text(client), Text(Workers), Text(PauseMs)];
        var process = Process.Start(new ProcessStartInfo("dotnet", arguments)
        {
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
            // Five of them run beside three nodes. Threads for a machine of their own would take the nodes' processors.
            Environment = { ["DOTNET_PROCESSOR_COUNT"] = "1", ["DOTNET_gcConcurrent"] = "0" },
        })!;
        process.OutputDataReceived += (_, line) =>
        {
            if (int.TryParse(line.Data, CultureInfo.InvariantCulture, out var changes))
                _changes[client] = changes;
            else if (line.Data?.StartsWith(HistoryClient.ContradictionMark, StringComparison.Ordinal) == true)
                _contradictions.Enqueue(line.Data);
            else if (line.Data is { } file)
                _written[file] = true;
        };
        process.BeginOutputReadLine();
        return process;
    }

    private static string Text(int number) => number.ToString(CultureInfo.InvariantCulture);
}
