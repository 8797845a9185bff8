using KvCluster.Benchmarks.Cluster;
using KvCluster.Client;

namespace KvCluster.Benchmarks.Clients;

/// <summary>
/// Managed bytes that this process allocates for a put and for a get of the library, everything on the way of the call included, and the value of a get. The
/// servers are other processes, and keys and values of puts are made before.
/// </summary>
internal static class AllocationMeasure
{
    public const string Unit = "bytes/op";
    public static readonly string Put = $"put, {ClientsSuite.Callers} callers, allocation of the client";
    public static readonly string Get = $"get, {ClientsSuite.Callers} callers, allocation of the client";

    public static async Task<IReadOnlyList<BenchmarkRow>> RunAsync(KvServers servers, bool quick, Action<string> progress, CancellationToken cancellation)
    {
        await using var client = new KvClient(servers.RouterAddress);
        KvKey[] keys = [.. new KeySpace(seed: 7).Keys.Select(static key => new KvKey(key.Memory))];
        var values = ManyKeys.Values(ClientsSuite.ValueBytes);
        var (runs, callsOfEach) = (quick ? 1 : 3, quick ? 200 : 1_000);
        var rows = new List<BenchmarkRow>();
        // All keys are put before one is read. Operations are in loops here, because one that is called would be a task of its own.
        await AddAsync(Put, async first =>
        {
            for (var number = first; number < first + callsOfEach; number++)
                await client.PutAsync(keys[number % keys.Length], values[number & (values.Length - 1)], cancellationToken: cancellation);
        });
        await AddAsync(Get, async first =>
        {
            for (var number = first; number < first + callsOfEach; number++)
            {
                if (!(await client.GetAsync(keys[number % keys.Length], cancellationToken: cancellation)).Found)
                    throw new InvalidOperationException("A key that was put is not found: the numbers would be of something else.");
            }
        });
        return rows;

        async Task AddAsync(string workload, Func<int, Task> calls)
        {
            // Connections and pools.
            _ = await BytesAsync(calls);
            var bytes = new List<double>();
            for (var run = 0; run < runs; run++)
                bytes.Add(await BytesAsync(calls));
            rows.Add(BenchmarkRow.Of(ClientsSuite.Name, workload, ClientsSuite.Ours, Unit, bytes));
            progress($"{workload}: {rows[^1].Median:F0} bytes");
        }

        async Task<double> BytesAsync(Func<int, Task> calls)
        {
            var before = GC.GetTotalAllocatedBytes(precise: true);
            await Task.WhenAll(Enumerable.Range(0, ClientsSuite.Callers).Select(caller => Task.Run(() => calls(caller * callsOfEach), cancellation)));
            return (double)(GC.GetTotalAllocatedBytes(precise: true) - before) / (ClientsSuite.Callers * callsOfEach);
        }
    }
}
