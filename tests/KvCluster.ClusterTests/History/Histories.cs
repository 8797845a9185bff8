using System.Globalization;
using System.Runtime.CompilerServices;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.History;

/// <summary>
/// Client processes that record what they see of a cluster, and the check of their histories. One history follows the other, and each runs until it
/// is checked. When disposed, the processes wait for another cluster, or are ended if a history was not checked.
/// </summary>
internal sealed class Histories : IAsyncDisposable
{
    /// <summary>The limit for the changes of an ordinary run.</summary>
    public static readonly TimeSpan Limit = TimeSpan.FromMinutes(10);

    private static readonly string Log = Path.Combine(AppContext.BaseDirectory, "histories.log");

    private static readonly Lock Gate = new();

    // Guarded by the gate.
    private static readonly HashSet<string> Tests = [];
    private static int _operations;

    private readonly string _folder;
    private readonly IReadOnlyList<string> _endpoints;
    private readonly HistoryProcesses _clients = HistoryProcesses.Take();
    private bool _isResting;
    private int _history;

    /// <summary>Begins the first history.</summary>
    /// <param name="folder">The directory for the histories' files.</param>
    public Histories(string folder, IReadOnlyList<string> endpoints)
    {
        (_folder, _endpoints) = (folder, endpoints);
        Begin();
    }

    /// <summary>Whether this is the run with KV_LONG=1.</summary>
    public static bool IsLong => Environment.GetEnvironmentVariable("KV_LONG") == "1";

    /// <summary>Every count of operations is multiplied by this; an ordinary run is short.</summary>
    public static int Length => IsLong ? 20 : 1;

    /// <summary>The tests whose histories were checked in this run so far, and the operations in them.</summary>
    public static (IReadOnlySet<string> Tests, int Operations) Judged
    {
        get
        {
            lock (Gate)
                return (Tests.ToHashSet(), _operations);
        }
    }

    /// <summary>The number of acknowledged changes so far.</summary>
    public int Changes => _clients.Changes;

    /// <summary>Waits until this many further changes, times the length of the run, are acknowledged.</summary>
    public Task MoreChangesAsync(int changes) => MoreChangesNowAsync(changes * Length);

    /// <summary>The same without the length of the run, for a test that repeats itself instead.</summary>
    public Task MoreChangesNowAsync(int changes)
    {
        var goal = Changes + changes;
        return Eventually.TrueAsync(() => Changes >= goal, $"{goal} acknowledged changes", Limit * Length);
    }

    /// <summary>Starts another history with new keys.</summary>
    public void Begin()
    {
        Directory.CreateDirectory(Path.GetDirectoryName(FileOf(0))!);
        _isResting = false;
        _clients.Tell(client => string.Join(' ', [FileOf(client), .. _endpoints]));
    }

    /// <summary>Ends the history and checks it. The clients pause until <see cref="Begin"/>.</summary>
    /// <param name="test">The test's name, for the log.</param>
    public async Task CheckAsync([CallerMemberName] string test = "")
    {
        _clients.Tell(static _ => "");
        await Eventually.TrueAsync(() => _clients.HaveWritten(FileOf), "the clients' histories are complete", Limit);
        _isResting = true;
        Assert.Empty(_clients.Contradictions);
        var whole = Path.Combine(Path.GetDirectoryName(FileOf(0))!, "whole.jsonl");
        HistoryEntry[] entries =
            [.. Enumerable.Range(0, HistoryProcesses.Count).SelectMany(client => File.ReadLines(FileOf(client))).Select(HistoryEntry.FromLine)];
        await File.WriteAllLinesAsync(whole, entries.Where(static entry => entry.Mode.Length == 0).Select(static entry => entry.ToLine()));
        Assert.Empty(PositionRules.Judge(entries));

        var (exitCode, said, error) = await Tools.RunAsync(Tools.Find("lincheck")!, "-limit", "300s", whole);
        Assert.True(exitCode == 0, $"lincheck {exitCode}: {said} {error}");
        Count(test, entries.Length);
        _history++;
    }

    /// <summary>Ends the log with the total.</summary>
    public static void LogTotal()
    {
        var (tests, operations) = Judged;
        File.AppendAllText(Log, string.Create(CultureInfo.InvariantCulture, $"histories of {tests.Count} tests, {operations} operations: all linearizable\n"));
    }

    public async ValueTask DisposeAsync()
    {
        if (_isResting)
            _clients.GiveBack();
        else
            await _clients.DisposeAsync();
    }

    // Writes one line per history beside this program, with the number of checked operations.
    private static void Count(string test, int operations)
    {
        lock (Gate)
        {
            if (Tests.Count == 0)
                File.Delete(Log);
            Tests.Add(test);
            _operations += operations;
            File.AppendAllText(Log, string.Create(CultureInfo.InvariantCulture, $"{test}: {operations} operations, linearizable; {_operations} so far\n"));
        }
    }

    private string FileOf(int client) =>
        Path.Combine(_folder, string.Create(CultureInfo.InvariantCulture, $"h{_history}"), string.Create(CultureInfo.InvariantCulture, $"{client}.jsonl"));
}
