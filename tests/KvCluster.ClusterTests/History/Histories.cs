using System.Diagnostics;
using System.Globalization;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.History;

/// <summary>Client processes that record what they see of a cluster, and the verdict on it. Disposed: they are gone.</summary>
internal sealed class Histories : IAsyncDisposable
{
    private const int Clients = 5;
    private const int Workers = 4;

    private static readonly TimeSpan Limit = TimeSpan.FromSeconds(120);

    private readonly string _folder;
    private readonly Process[] _clients;
    private readonly (int Known, int Changes)[] _counts = new (int, int)[Clients];

    /// <param name="folder">For the history's files.</param>
    /// <param name="pauseMs">Of every worker after each operation.</param>
    public Histories(string folder, IReadOnlyList<string> endpoints, int pauseMs = 8)
    {
        _folder = folder;
        _clients = [.. Enumerable.Range(0, Clients).Select(client => Start(client, endpoints, pauseMs))];
    }

    /// <summary>Every count of operations is multiplied by this: short in an ordinary run, long with KV_LONG=1.</summary>
    public static int Length => Environment.GetEnvironmentVariable("KV_LONG") == "1" ? 20 : 1;

    /// <summary>Operations of known outcome so far.</summary>
    public int Known => _counts.Sum(count => count.Known);

    /// <summary>Acknowledged changes so far.</summary>
    public int Changes => _counts.Sum(count => count.Changes);

    /// <summary>Waits until so many further changes, times the length of the run, are acknowledged.</summary>
    public Task MoreChangesAsync(int changes) => MoreChangesNowAsync(changes * Length);

    /// <summary>The same, whatever the length of the run: where a test repeats itself instead.</summary>
    public Task MoreChangesNowAsync(int changes)
    {
        var goal = Changes + changes;
        return Until.TrueAsync(() => Changes >= goal, $"{goal} acknowledged changes", Limit * Length);
    }

    /// <summary>Ends the clients and has their history checked.</summary>
    /// <returns>What the checker says; the test has failed if it is not linearizable.</returns>
    public async Task<string> CheckAsync()
    {
        foreach (var client in _clients)
            client.StandardInput.Close();
        foreach (var client in _clients)
            await client.WaitForExitAsync().WaitAsync(Limit);
        var whole = Path.Combine(_folder, "history.jsonl");
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
        return said;
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

    private string FileOf(int client) => Path.Combine(_folder, string.Create(CultureInfo.InvariantCulture, $"history-{client}.jsonl"));

    private Process Start(int client, IReadOnlyList<string> endpoints, int pauseMs)
    {
        string[] arguments = [typeof(Histories).Assembly.Location, "history", FileOf(client), Text(client), Text(Workers), Text(pauseMs), .. endpoints];
        var process = Process.Start(new ProcessStartInfo("dotnet", arguments) { RedirectStandardInput = true, RedirectStandardOutput = true })!;
        process.OutputDataReceived += (_, line) =>
        {
            if (line.Data?.Split(' ') is [var known, var changes])
                _counts[client] = (int.Parse(known, CultureInfo.InvariantCulture), int.Parse(changes, CultureInfo.InvariantCulture));
        };
        process.BeginOutputReadLine();
        return process;
    }

    private static string Text(int number) => number.ToString(CultureInfo.InvariantCulture);
}
