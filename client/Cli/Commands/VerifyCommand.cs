using System.CommandLine;
using System.Diagnostics;
using System.Globalization;
using KvCluster.Cli.Files;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv verify`: reads every key of a file and compares the values, several batches at once.</summary>
internal static class VerifyCommand
{
    private const int BatchRecords = 1000;

    // Far below the limit of one answer, if the cluster's values are about as long as the file's.
    private const int BatchBytes = 1 << 20;
    private const int BatchesOpenMax = 8;
    private const int DifferencesShown = 10;

    private static readonly Argument<string> File =
        new("FILE") { Description = "The file, as import reads it. - is standard input." };

    private static readonly Option<bool> Owned = new("--owned")
    {
        Description = "Also compare keys that sessions owned where they were printed. They end with their sessions, and import leaves them out.",
    };

    public static Command Create() => CliCommand.CreateReader(
        "verify", "Read every key of a file and compare the values. The exit code is 6 if any differ.", [File, Owned, .. TsvOptions.All], RunAsync);

    private static async Task<int> RunAsync(ParseResult arguments, Output output, CancellationToken stop)
    {
        using var file = RecordReader.Open(arguments.GetRequiredValue(File), TsvOptions.Of(arguments));
        await using var client = Globals.ClientOf(arguments);
        var started = Stopwatch.GetTimestamp();
        var differences = new Differences();
        var batches = new Batches(file, arguments.GetValue(Owned));
        await foreach (var compared in CompareAllAsync(batches, client, stop))
        {
            foreach (var one in compared)
                differences.Add(one);
            if (differences.IsFull)
                break;
        }

        foreach (var one in differences.First(DifferencesShown))
            StandardError.Tell($"line {one.Record.Line}: {Text.ForPeople(one.Record.Key.Span)} "
                + $"{(one.Comparison == Comparison.Missing ? "is missing" : "has a different value")}");
        Print(output, batches, differences, Stopwatch.GetElapsedTime(started).TotalSeconds);
        if (batches.LeftOut > 0)
            StandardError.Tell($"keys left out because sessions owned them: {Text.Number(batches.LeftOut)}. With --owned they are compared, too.");
        return differences.Count == 0 ? ExitCodes.Done : ExitCodes.VerifyFoundDifferences;
    }

    // In the order of the file, regardless of the order of the answers.
    private static async IAsyncEnumerable<List<ComparedRecord>> CompareAllAsync(
        Batches batches, KvClient client, [System.Runtime.CompilerServices.EnumeratorCancellation] CancellationToken stop)
    {
        var open = new Queue<Task<List<ComparedRecord>>>();
        while (await batches.ReadAsync(stop) is { Count: > 0 } batch)
        {
            open.Enqueue(CompareAsync(client, batch, stop));
            if (open.Count == BatchesOpenMax)
                yield return await open.Dequeue();
        }

        while (open.TryDequeue(out var compared))
            yield return await compared;
    }

    private static async Task<List<ComparedRecord>> CompareAsync(KvClient client, List<FileRecord> records, CancellationToken stop)
    {
        var results = await client.GetManyAsync(records.ConvertAll(static record => (KvKey)record.Key), cancellationToken: stop);
        return [.. records.Zip(results, (record, result) => new ComparedRecord(record, Compare(record, result)))];
    }

    private static Comparison Compare(FileRecord record, GetResult result) =>
        !result.Found ? Comparison.Missing : result.Value.Span.SequenceEqual(record.Value.Span) ? Comparison.Equal : Comparison.Different;

    private static void Print(Output output, Batches batches, Differences differences, double seconds)
    {
        var (records, missing, different) = (batches.Records, differences.CountOf(Comparison.Missing), differences.CountOf(Comparison.Different));
        if (output.IsJson)
            output.Document(new Fields
            {
                { "records", records },
                { "missing", missing },
                { "different", different },
                { "seconds", Math.Round(seconds, 3) },
                { "left_out", batches.LeftOut },
            });
        else
            output.Line(string.Create(CultureInfo.InvariantCulture, $"{records:N0} records in {seconds:F1} s, {records / seconds:N0} records/s; "
                + $"{missing:N0} missing, {different:N0} different"));
    }

    /// <summary>The records of the file that are compared. Those that sessions owned are left out, as import does, unless they are asked for.</summary>
    private sealed class Batches(RecordReader file, bool withOwned)
    {
        /// <summary>How many records were read to be compared.</summary>
        public long Records => file.Records - LeftOut;

        /// <summary>How many were left out.</summary>
        public long LeftOut { get; private set; }

        /// <summary>The next ones; none at the end.</summary>
        public async Task<List<FileRecord>> ReadAsync(CancellationToken stop)
        {
            var batch = new List<FileRecord>(BatchRecords);
            for (var bytes = 0; batch.Count < BatchRecords && bytes < BatchBytes && await file.ReadAsync(stop) is { } record;)
            {
                if (record.IsOwned && !withOwned)
                {
                    LeftOut++;
                    continue;
                }
                batch.Add(record);
                bytes += record.Value.Length;
            }
            return batch;
        }
    }
}
