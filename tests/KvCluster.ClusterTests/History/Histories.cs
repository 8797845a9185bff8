using System.Collections.Concurrent;
using System.Diagnostics;
using System.Globalization;
using System.Runtime.CompilerServices;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.History;

/// <summary>
/// Client processes that record what they see of a cluster, and the verdict on it. One history after the other: a begun one runs until it is checked.
/// Disposed: the processes are gone.
/// </summary>
internal sealed class Histories : IAsyncDisposable
{
    private const int Clients = 5;
    private const int Workers = 4;

    private static readonly TimeSpan Limit = TimeSpan.FromSeconds(120);

    private static readonly string Log = Path.Combine(AppContext.BaseDirectory, "histories.log");

    private static int _checked;

    private readonly string _folder;
    private readonly Process[] _clients;
    private readonly int[] _changes = new int[Clients];
    private readonly ConcurrentDictionary<string, bool> _complete = new();
    private int _history;

    /// <param name="folder">For the histories' files.</param>
    /// <param name="pauseMs">Of every worker after each operation.</param>
    public Histories(string folder, IReadOnlyList<string> endpoints, int pauseMs = 8)
    {
        _folder = folder;
        _clients = [.. Enumerable.Range(0, Clients).Select(client => Start(client, endpoints, pauseMs))];
        Begin();
    }

    /// <summary>Every count of operations is multiplied by this: short in an ordinary run, long with KV_LONG=1.</summary>
    public static int Length => Environment.GetEnvironmentVariable("KV_LONG") == "1" ? 20 : 1;

    /// <summary>Acknowledged changes so far.</summary>
    public int Changes => _changes.Sum();

    /// <summary>Waits until so many further changes, times the length of the run, are acknowledged.</summary>
    public Task MoreChangesAsync(int changes) => MoreChangesNowAsync(changes * Length);

    /// <summary>The same, whatever the length of the run: where a test repeats itself instead.</summary>
    public Task MoreChangesNowAsync(int changes)
    {
        var goal = Changes + changes;
        return Until.TrueAsync(() => Changes >= goal, $"{goal} acknowledged changes", Limit * Length);
    }

    /// <summary>Has the clients begin another history, on keys of its own.</summary>
    public void Begin()
    {
        Directory.CreateDirectory(Path.GetDirectoryName(FileOf(0))!);
        for (var client = 0; client < Clients; client++)
            _clients[client].StandardInput.WriteLine(FileOf(client));
    }

    /// <summary>Ends the history and has it checked: the clients rest until <see cref="Begin"/>.</summary>
    /// <param name="test">Whose history it is, for the log.</param>
    public async Task CheckAsync([CallerMemberName] string test = "")
    {
        foreach (var client in _clients)
            client.StandardInput.WriteLine();
        await Until.TrueAsync(() => Enumerable.Range(0, Clients).All(client => _complete.ContainsKey(FileOf(client))), "the clients' histories are complete", Limit);
        var whole = Path.Combine(Path.GetDirectoryName(FileOf(0))!, "whole.jsonl");
        await using (var output = File.Create(whole))
        {
            for (var client = 0; client < Clients; client++)
            {
                await using var input = File.OpenRead(FileOf(client));
                await input.CopyToAsync(output);
            }
        }

        var (exitCode, said, error) = await Tools.RunAsync(Tools.Find("lincheck")!, "-limit", "120s", whole);
        Assert.True(exitCode == 0, $"lincheck {exitCode}: {said} {error}");
        Count(test, File.ReadLines(whole).Count());
        _history++;
    }

    public async ValueTask DisposeAsync()
    {
        foreach (var client in _clients)
        {
            if (!client.HasExited)
                client.Kill();
            await client.WaitForExitAsync();
            client.Dispose();
        }
    }

    // One line a history beside this program, the sum over all of the run at its end: what the checker has judged.
    private static void Count(string test, int operations)
    {
        lock (Log)
        {
            if (_checked == 0)
                File.Delete(Log);
            _checked += operations;
            File.AppendAllText(Log, string.Create(CultureInfo.InvariantCulture, $"{test}: {operations} operations, linearizable; {_checked} so far\n"));
        }
    }

    private string FileOf(int client) => Path.Combine(_folder, string.Create(CultureInfo.InvariantCulture, $"h{_history}"), string.Create(CultureInfo.InvariantCulture, $"{client}.jsonl"));

    private Process Start(int client, IReadOnlyList<string> endpoints, int pauseMs)
    {
        string[] arguments = [typeof(Histories).Assembly.Location, "history", Text(client), Text(Workers), Text(pauseMs), .. endpoints];
        var process = Process.Start(new ProcessStartInfo("dotnet", arguments)
        {
            RedirectStandardInput = true,
            RedirectStandardOutput = true,
            // Five of them beside three nodes: threads and compilation for a machine of their own would take the nodes' processors.
            Environment = { ["DOTNET_PROCESSOR_COUNT"] = "1", ["DOTNET_TieredPGO"] = "0", ["DOTNET_gcConcurrent"] = "0" },
        })!;
        process.OutputDataReceived += (_, line) =>
        {
            if (int.TryParse(line.Data, CultureInfo.InvariantCulture, out var changes))
                _changes[client] = changes;
            else if (line.Data is { } file)
                _complete[file] = true;
        };
        process.BeginOutputReadLine();
        return process;
    }

    private static string Text(int number) => number.ToString(CultureInfo.InvariantCulture);
}
