namespace KvCluster.Benchmarks.Clients;

/// <summary>Loads numbered records in batches, of which several are under way, into systems whose clients have no load of their own.</summary>
internal static class BatchedLoad
{
    private const int BatchesOpenMax = 16;

    /// <param name="records">The number of records.</param>
    /// <param name="batchRecords">Records of a batch.</param>
    /// <param name="write">Writes a batch: gets its first record and their number.</param>
    /// <param name="cancellation">Ends the load with an exception.</param>
    public static Task RunAsync(int records, int batchRecords, Func<int, int, Task> write, CancellationToken cancellation) => Parallel.ForEachAsync(
        Enumerable.Range(0, (records + batchRecords - 1) / batchRecords),
        new ParallelOptions { MaxDegreeOfParallelism = BatchesOpenMax, CancellationToken = cancellation },
        async (batch, _) => await write(batch * batchRecords, Math.Min(batchRecords, records - (batch * batchRecords))));
}
