using System.Diagnostics;
using System.Globalization;
using Grpc.Net.Client;
using KvCluster.Client;

namespace KvCluster.ClusterTests.History;

/// <summary>
/// A client process: workers that read, put, put on condition and delete the same few keys as those of other processes, half of them through the
/// library and half by unary calls. A line on standard input names a file and the nodes' addresses and begins a history, an empty one ends it, and the end of
/// the input ends the process. Each line on standard output is how many changes were acknowledged so far, or the
/// name of a file that is complete.
/// </summary>
internal sealed class HistoryClient
{
    /// <summary>First letters of keys: a test that splits its cluster between them has keys in every shard.</summary>
    private const string Letters = "ahpw";

    private const int KeysOfALetter = 3;

    // The same keys for all processes at a time, others after it: contended, and yet no key's history grows beyond what a checker can search.
    private static readonly TimeSpan KeyTime = TimeSpan.FromSeconds(1);

    private readonly Lock _gate = new();
    private readonly TimeSpan _pause;
    private int _changes;

    private HistoryClient(TimeSpan pause) => _pause = pause;

    /// <returns>The process's exit code.</returns>
    public static async Task<int> RunAsync(int client, int workers, TimeSpan pause)
    {
        var history = new HistoryClient(pause);
        using var ending = new CancellationTokenSource();
        var reporting = history.ReportAsync(ending.Token);
        while (await ReadLineAsync() is { } line)
        {
            var words = line.Split(' ');
            await history.RecordAsync(words[0], client, workers, words[1..]);
            Console.WriteLine(words[0]);
        }

        await ending.CancelAsync();
        await reporting;
        return 0;
    }

    private static Task<string?> ReadLineAsync() => Task.Run(Console.In.ReadLine);

    // Ends when every operation that was begun has ended: what others may have seen of it is in the history.
    private async Task RecordAsync(string file, int client, int workers, IReadOnlyList<string> endpoints)
    {
        var channels = endpoints.Select(GrpcChannel.ForAddress).ToArray();
        using var stopping = new CancellationTokenSource();
        await using var library = new KvClient(new KvClientOptions { Endpoints = endpoints, Timeout = TimeSpan.FromSeconds(5) });
        await using var output = new StreamWriter(file);
        var prefix = Path.GetFileName(Path.GetDirectoryName(file))!;
        var running = Enumerable.Range(0, workers).Select(worker => WorkAsync(
            (client * 100) + worker, prefix, worker % 2 == 0 ? new LibraryStore(library) : new UnaryStore(channels), output, stopping.Token)).ToArray();
        await ReadLineAsync();
        await stopping.CancelAsync();
        await Task.WhenAll(running);
        foreach (var channel in channels)
            channel.Dispose();
    }

    private async Task WorkAsync(int client, string prefix, IObservedStore store, StreamWriter output, CancellationToken stopping)
    {
        var random = new Random(client);
        var lastSeen = new Dictionary<string, string?>();
        for (var number = 0; !stopping.IsCancellationRequested; number++)
        {
            var key = NextKey(random, prefix);
            var value = string.Create(CultureInfo.InvariantCulture, $"{client}-{number}");
            lastSeen.TryGetValue(key, out var expected);
            var call = Now();
            var (op, written, observed) = random.Next(100) switch
            {
                < 40 => ("get", "", await store.GetAsync(key)),
                < 65 => ("put", value, await store.PutAsync(key, value)),
                < 90 => ("cas", value, await store.PutIfAsync(key, expected, value)),
                _ => ("delete", "", await store.DeleteAsync(key)),
            };
            var entry = new HistoryEntry(
                client, key, op, op == "get" ? observed.Value : written, op == "cas" ? expected ?? "" : "", op == "cas" && expected is null,
                observed.Found, call, Now(), observed.Status, observed.Etag);
            Write(output, entry);
            if (observed.Status == "ok")
                lastSeen[key] = Known(op, value, expected, observed);
            if (lastSeen.Count > 1000)
                lastSeen.Clear();
            await Task.Delay(observed.Status == "ok" ? _pause : TimeSpan.FromMilliseconds(20), CancellationToken.None);
        }
    }

    // What this worker last knew of the key; a condition that failed tells only that it knows nothing.
    private static string? Known(string op, string value, string? expected, Observation observed) => op switch
    {
        "get" => observed.Found ? observed.Value : null,
        "put" => value,
        "cas" => observed.Found ? value : expected is null ? "nothing that was ever written" : null,
        _ => null,
    };

    // The prefix is the history's: it begins with keys that nobody has written.
    private static string NextKey(Random random, string prefix)
    {
        var time = (long)(Stopwatch.GetElapsedTime(0) / KeyTime);
        return string.Create(CultureInfo.InvariantCulture, $"{Letters[random.Next(Letters.Length)]}{prefix}-{time}-{random.Next(KeysOfALetter)}");
    }

    private static long Now() => (long)(Stopwatch.GetElapsedTime(0).TotalMicroseconds * 1000);

    private void Write(StreamWriter output, HistoryEntry entry)
    {
        lock (_gate)
        {
            output.WriteLine(entry.ToLine());
            if (entry.Status == "ok" && entry.Op != "get" && (entry.Op != "cas" || entry.Found))
                _changes++;
        }
    }

    private async Task ReportAsync(CancellationToken ending)
    {
        while (!ending.IsCancellationRequested)
        {
            await Task.Delay(50, ending).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            int changes;
            lock (_gate)
                changes = _changes;
            Console.WriteLine(changes.ToString(CultureInfo.InvariantCulture));
        }
    }
}
