using System.Collections.Concurrent;
using System.Globalization;
using Grpc.Net.Client;
using KvCluster.Client;

namespace KvCluster.ClusterTests.History;

/// <summary>
/// A client process. Its workers read at leaders and replicas, scan, put one or two keys on condition, delete, and at the end read back what was
/// acknowledged. All processes use the same few keys. Half of the workers use the library, half unary calls. A line on standard input names a file
/// and the nodes' addresses and begins a history, an empty line ends it, and the end of the input ends the process. Each line on standard output is
/// the number of changes acknowledged so far, the name of a complete file or, with a mark, a contradiction within one answer.
/// </summary>
internal sealed class HistoryClient
{
    /// <summary>The beginning of a line on standard output that reports a contradiction.</summary>
    public const string ContradictionMark = "contradiction: ";

    // For each process, at the end of a history.
    private const int Readers = 16;

    private readonly Lock _gate = new();
    private readonly TimeSpan _pause;
    private readonly HashSet<string> _changed = [];
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

    // Ends when every operation has ended, because others may have seen its effect.
    private async Task RecordAsync(string file, int client, int workers, IReadOnlyList<string> endpoints)
    {
        var channels = endpoints.Select(GrpcChannel.ForAddress).ToArray();
        using var stopping = new CancellationTokenSource();
        await using var library = new KvClient(new KvClientOptions { Endpoints = endpoints, Timeout = TimeSpan.FromSeconds(5) });
        await using var output = new StreamWriter(file);
        var prefix = Path.GetFileName(Path.GetDirectoryName(file))!;
        var running = Enumerable.Range(0, workers).Select(worker => WorkAsync(
            new HistoryWorker((client * 100) + worker, prefix, worker % 2 == 0 ? new LibraryStore(library) : new UnaryStore(channels)),
            output, stopping.Token)).ToArray();
        await ReadLineAsync();
        await stopping.CancelAsync();
        await Task.WhenAll(running);
        await ReadBackAsync(client, prefix, library, output);
        foreach (var channel in channels)
            channel.Dispose();
    }

    // Reads each key for which a change of this process was acknowledged. A lost change then shows in the history.
    private async Task ReadBackAsync(int client, string prefix, KvClient library, StreamWriter output)
    {
        var keys = new ConcurrentQueue<string>(_changed);
        _changed.Clear();
        await Task.WhenAll(Enumerable.Range(0, Readers).Select(async reader =>
        {
            var worker = new HistoryWorker((client * 100) + 50 + reader, prefix, new LibraryStore(library));
            while (keys.TryDequeue(out var key))
            {
                if (await worker.ReadBackAsync(key) is { } entry)
                    Write(output, [entry]);
                else
                    Console.WriteLine($"{ContradictionMark}{key}, of which a change was acknowledged, could not be read back");
            }
        }));
    }

    private async Task WorkAsync(HistoryWorker worker, StreamWriter output, CancellationToken stopping)
    {
        while (!stopping.IsCancellationRequested)
        {
            var entries = await worker.NextAsync();
            Write(output, entries);
            await Task.Delay(entries.Any(static entry => entry.Status == "ok") ? _pause : TimeSpan.FromMilliseconds(20), CancellationToken.None);
        }

        if (worker.Contradiction is { } contradiction)
            Console.WriteLine(ContradictionMark + contradiction);
    }

    private void Write(StreamWriter output, IReadOnlyList<HistoryEntry> entries)
    {
        lock (_gate)
        {
            foreach (var entry in entries)
                output.WriteLine(entry.ToLine());
            _changes += entries.Count(static entry => entry.IsChange);
            _changed.UnionWith(entries.Where(static entry => entry.IsChange).Select(static entry => entry.Key));
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
