using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.V1;

namespace KvCluster.Local;

/// <summary>The launcher as a client of its own cluster, through the router like any other: waits until it serves, loads the sample.</summary>
internal sealed class ClusterAccess(LocalOptions options) : IDisposable
{
    private static readonly TimeSpan PollInterval = TimeSpan.FromMilliseconds(50);
    private static readonly TimeSpan CallLimit = TimeSpan.FromSeconds(2);

    // After a hard end of the last run the shards replay their journals first.
    private static readonly TimeSpan ServeLimit = TimeSpan.FromSeconds(60);
    private const int SampleWritesOpen = 64;

    private readonly GrpcChannel _router = GrpcChannel.ForAddress(options.RouterAddress);

    public void Dispose() => _router.Dispose();

    /// <summary>Waits until every shard has a leader that the router knows.</summary>
    /// <exception cref="LauncherException">That took too long.</exception>
    public async Task WaitUntilServingAsync(int shards, CancellationToken stop)
    {
        var client = new Cluster.ClusterClient(_router);
        using var limit = CancellationTokenSource.CreateLinkedTokenSource(stop);
        limit.CancelAfter(ServeLimit);
        try
        {
            while (await LedShardsAsync(client, limit.Token) < shards)
                await Task.Delay(PollInterval, limit.Token);
        }
        catch (OperationCanceledException) when (!stop.IsCancellationRequested)
        {
            throw new LauncherException(ExitCodes.Unavailable, $"Not every shard has a leader after {ServeLimit.TotalSeconds} s; the logs are in the data folder's run/.");
        }
    }

    /// <summary>Puts the records of the sample; those that are there are put again.</summary>
    /// <returns>How many.</returns>
    public async Task<int> LoadSampleAsync(CancellationToken stop)
    {
        var client = new Kv.KvClient(_router);
        var records = SampleData.Records().ToArray();
        await Parallel.ForEachAsync(records, new ParallelOptions { MaxDegreeOfParallelism = SampleWritesOpen, CancellationToken = stop }, async (record, cancellation) =>
            await client.PutAsync(new PutRequest { Key = ByteString.CopyFromUtf8(record.Key), Value = ByteString.CopyFromUtf8(record.Value) }, cancellationToken: cancellation));
        return records.Length;
    }

    private static async Task<int> LedShardsAsync(Cluster.ClusterClient client, CancellationToken stop)
    {
        try
        {
            var status = await client.GetStatusAsync(new GetStatusRequest(), deadline: DateTime.UtcNow + CallLimit, cancellationToken: stop);
            return status.Nodes.SelectMany(node => node.Replicas).Where(replica => replica.Role == "leader").Select(replica => replica.Route.Shard).Distinct().Count();
        }
        catch (RpcException e) when (e.StatusCode is StatusCode.Unavailable or StatusCode.DeadlineExceeded or StatusCode.Cancelled)
        {
            // Not up yet; the caller's limit ends the waiting.
            stop.ThrowIfCancellationRequested();
            return 0;
        }
    }
}
