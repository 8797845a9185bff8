using System.Diagnostics;
using System.Globalization;
using Grpc.Net.Client;
using KvCluster.Client;

namespace KvCluster.ClusterTests.History;

/// <summary>
/// A client process: workers that read, put, put on condition and delete the same few keys as those of other processes, half of them through the
/// library and half by unary calls. Ends when standard input ends. Each line on standard output is how many operations ended with a known outcome so far,
/// and how many of them were changes.
/// </summary>
internal sealed class HistoryClient : IDisposable
{
    /// <summary>First letters of keys: a test that splits its cluster between them has keys in every shard.</summary>
    private const string Letters = "ahpw";

    private const int KeysOfALetter = 3;

    // The same keys for all processes at a time, others after it: contended, and yet no key's history grows beyond what a checker can search.
    private static readonly TimeSpan KeyTime = TimeSpan.FromSeconds(1);

    private readonly StreamWriter _output;
    private readonly Lock _gate = new();
    private readonly CancellationTokenSource _stopping = new();
    private readonly TimeSpan _pause;
    private int _known;
    private int _changes;

    private HistoryClient(string file, TimeSpan pause)
    {
        _output = new StreamWriter(file);
        _pause = pause;
    }

    /// <returns>The process's exit code.</returns>
    public static async Task<int> RunAsync(string file, int client, int workers, TimeSpan pause, IReadOnlyList<string> endpoints)
    {
        using var history = new HistoryClient(file, pause);
        var channels = endpoints.Select(GrpcChannel.ForAddress).ToArray();
        await using var library = new KvClient(new KvClientOptions { Endpoints = endpoints, Timeout = TimeSpan.FromSeconds(5) });
        var running = Enumerable.Range(0, workers).Select(worker => history.WorkAsync(
            (client * 100) + worker,
            worker % 2 == 0 ? new LibraryStore(library) : new UnaryStore(channels))).ToArray();
        var reporting = history.ReportAsync();
        await Task.Run(static () => Console.OpenStandardInput().CopyTo(Stream.Null));
        await history._stopping.CancelAsync();
        await Task.WhenAll(running);
        await reporting;
        foreach (var channel in channels)
            channel.Dispose();
        return 0;
    }

    public void Dispose()
    {
        _output.Dispose();
        _stopping.Dispose();
    }

    private async Task WorkAsync(int client, IObservedStore store)
    {
        var random = new Random(client);
        var lastSeen = new Dictionary<string, string?>();
        for (var number = 0; !_stopping.IsCancellationRequested; number++)
        {
            var key = NextKey(random);
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
            Write(entry);
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

    private static string NextKey(Random random)
    {
        var time = (long)(Stopwatch.GetElapsedTime(0) / KeyTime);
        return string.Create(CultureInfo.InvariantCulture, $"{Letters[random.Next(Letters.Length)]}{time}-{random.Next(KeysOfALetter)}");
    }

    private static long Now() => (long)(Stopwatch.GetElapsedTime(0).TotalMicroseconds * 1000);

    private void Write(HistoryEntry entry)
    {
        lock (_gate)
        {
            _output.WriteLine(entry.ToLine());
            if (entry.Status != "ok")
                return;
            _known++;
            if (entry.Op != "get" && (entry.Op != "cas" || entry.Found))
                _changes++;
        }
    }

    private async Task ReportAsync()
    {
        while (!_stopping.IsCancellationRequested)
        {
            await Task.Delay(50, _stopping.Token).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            int known, changes;
            lock (_gate)
                (known, changes) = (_known, _changes);
            Console.WriteLine(string.Create(CultureInfo.InvariantCulture, $"{known} {changes}"));
        }
    }
}
