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

    public static Command Create() => CliCommand.CreateReader(
        "verify", "Read every key of a file and compare the values. The exit code is 6 if any differ.", [File, .. TsvOptions.All], RunAsync);

    private static async Task<int> RunAsync(ParseResult arguments, Output output, CancellationToken stop)
    {
        using var file = RecordReader.Open(arguments.GetRequiredValue(File), TsvOptions.Of(arguments));
        await using var client = Globals.ClientOf(arguments);
        var started = Stopwatch.GetTimestamp();
        var differences = new Differences();
        await foreach (var compared in CompareAllAsync(file, client, stop))
        {
            foreach (var one in compared)
                differences.Add(one);
            if (differences.IsFull)
                break;
        }

        foreach (var one in differences.First(DifferencesShown))
            StandardError.Tell($"line {one.Record.Line}: {Text.ForPeople(one.Record.Key.Span)} "
                + $"{(one.Comparison == Comparison.Missing ? "is missing" : "has a different value")}");
        Print(output, file.Records, differences, Stopwatch.GetElapsedTime(started).TotalSeconds);
        return differences.Count == 0 ? ExitCodes.Done : ExitCodes.VerifyFoundDifferences;
    }

    // In the order of the file, regardless of the order of the answers.
    private static async IAsyncEnumerable<List<ComparedRecord>> CompareAllAsync(
        RecordReader file, KvClient client, [System.Runtime.CompilerServices.EnumeratorCancellation] CancellationToken stop)
    {
        var open = new Queue<Task<List<ComparedRecord>>>();
        while (await ReadBatchAsync(file, stop) is { Count: > 0 } batch)
        {
            open.Enqueue(CompareAsync(client, batch, stop));
            if (open.Count == BatchesOpenMax)
                yield return await open.Dequeue();
        }

        while (open.TryDequeue(out var compared))
            yield return await compared;
    }

    private static async Task<List<FileRecord>> ReadBatchAsync(RecordReader file, CancellationToken stop)
    {
        var batch = new List<FileRecord>(BatchRecords);
        for (var bytes = 0; batch.Count < BatchRecords && bytes < BatchBytes && await file.ReadAsync(stop) is { } record; bytes += record.Value.Length)
            batch.Add(record);
        return batch;
    }

    private static async Task<List<ComparedRecord>> CompareAsync(KvClient client, List<FileRecord> records, CancellationToken stop)
    {
        var results = await client.GetManyAsync(records.ConvertAll(static record => (KvKey)record.Key), cancellationToken: stop);
        return [.. records.Zip(results, (record, result) => new ComparedRecord(record, Compare(record, result)))];
    }

    private static Comparison Compare(FileRecord record, GetResult result) =>
        !result.Found ? Comparison.Missing : result.Value.Span.SequenceEqual(record.Value.Span) ? Comparison.Equal : Comparison.Different;

    private static void Print(Output output, long records, Differences differences, double seconds)
    {
        var (missing, different) = (differences.CountOf(Comparison.Missing), differences.CountOf(Comparison.Different));
        if (output.IsJson)
            output.Document(new Fields { { "records", records }, { "missing", missing }, { "different", different }, { "seconds", Math.Round(seconds, 3) } });
        else
            output.Line(string.Create(CultureInfo.InvariantCulture, $"{records:N0} records in {seconds:F1} s, {records / seconds:N0} records/s; "
                + $"{missing:N0} missing, {different:N0} different"));
    }
}
