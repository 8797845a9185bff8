using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Tls;
using KvCluster.V1;

namespace KvCluster.Local;

/// <summary>The launcher as a client of its own cluster, through the router like any other: waits until it serves, loads the sample.</summary>
internal sealed class ClusterAccess(LocalOptions options) : IDisposable
{
    private static readonly TimeSpan PollInterval = TimeSpan.FromMilliseconds(50);
    private static readonly TimeSpan CallLimit = TimeSpan.FromSeconds(10);

    // After a hard end of the last run the shards replay their journals first, and the machine may have much else to do.
    private static readonly TimeSpan ServeLimit = TimeSpan.FromMinutes(3);
    private const int SampleWritesOpen = 64;

    private readonly GrpcChannel _router = ChannelTo(options);

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
            throw new LauncherException(ExitCodes.Unavailable, $"Not every shard has a leader after {ServeLimit.TotalMinutes} minutes; the logs are in the data folder's run/.");
        }
    }

    /// <summary>Puts the records of the sample; those that are there are put again.</summary>
    /// <returns>How many.</returns>
    /// <exception cref="LauncherException">A record could not be put for too long.</exception>
    public async Task<int> LoadSampleAsync(CancellationToken stop)
    {
        var client = new Kv.KvClient(_router);
        var records = SampleData.Records().ToArray();
        using var limit = CancellationTokenSource.CreateLinkedTokenSource(stop);
        limit.CancelAfter(ServeLimit);
        try
        {
            await Parallel.ForEachAsync(records, new ParallelOptions { MaxDegreeOfParallelism = SampleWritesOpen, CancellationToken = limit.Token }, async (record, cancellation) =>
                await PutUntilAcknowledgedAsync(client, new PutRequest { Key = ByteString.CopyFromUtf8(record.Key), Value = ByteString.CopyFromUtf8(record.Value) }, cancellation));
        }
        catch (OperationCanceledException) when (!stop.IsCancellationRequested)
        {
            throw new LauncherException(ExitCodes.Unavailable, $"The sample was not loaded within {ServeLimit.TotalMinutes} minutes; the logs are in the data folder's run/.");
        }

        return records.Length;
    }

    private static GrpcChannel ChannelTo(LocalOptions options)
    {
        var connector = new TlsConnector(options.TlsFilesOf("client") is { } files ? new CredentialFiles(files, TimeProvider.System) : null);
        return GrpcChannel.ForAddress(options.RouterAddress, new GrpcChannelOptions
        {
            HttpHandler = new SocketsHttpHandler { UseProxy = false, ConnectCallback = connector.ConnectAsync },
            DisposeHttpClient = true,
        });
    }

    // A shard may change its leader meanwhile. The same put again does no harm, whatever became of the one before.
    private static async Task PutUntilAcknowledgedAsync(Kv.KvClient client, PutRequest put, CancellationToken stop)
    {
        while (true)
        {
            try
            {
                await client.PutAsync(put, deadline: DateTime.UtcNow + CallLimit, cancellationToken: stop);
                return;
            }
            catch (RpcException e) when (IsPassing(e))
            {
                await Task.Delay(PollInterval, stop);
            }
        }
    }

    private static bool IsPassing(RpcException e) =>
        e.StatusCode is StatusCode.Unavailable or StatusCode.DeadlineExceeded or StatusCode.ResourceExhausted or StatusCode.Cancelled;

    private static async Task<int> LedShardsAsync(Cluster.ClusterClient client, CancellationToken stop)
    {
        try
        {
            var status = await client.GetStatusAsync(new GetStatusRequest(), deadline: DateTime.UtcNow + CallLimit, cancellationToken: stop);
            return status.Nodes.SelectMany(node => node.Replicas).Where(replica => replica.Role == "leader").Select(replica => replica.Route.Shard).Distinct().Count();
        }
        catch (RpcException e) when (IsPassing(e))
        {
            // Not up yet; the caller's limit ends the waiting.
            stop.ThrowIfCancellationRequested();
            return 0;
        }
    }
}
