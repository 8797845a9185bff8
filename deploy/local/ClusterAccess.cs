using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Tls;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Local;

/// <summary>The launcher as a client of its own cluster, through the router: waits until the cluster serves, and loads the sample.</summary>
internal sealed class ClusterAccess(LocalOptions options) : IDisposable
{
    private static readonly TimeSpan PollInterval = TimeSpan.FromMilliseconds(50);
    private static readonly TimeSpan CallLimit = TimeSpan.FromSeconds(10);

    // After a crash the shards replay their journals first, and the machine may be busy.
    private static readonly TimeSpan ServeLimit = TimeSpan.FromMinutes(3);
    private const int SampleWritesOpen = 64;

    private readonly GrpcChannel _router = ChannelTo(options);

    public void Dispose() => _router.Dispose();

    /// <summary>Waits until every shard has a leader that the router knows.</summary>
    /// <exception cref="LauncherException">It took too long.</exception>
    public async Task WaitUntilServingAsync(int shards, CancellationToken stop)
    {
        var client = new Cluster.ClusterClient(_router.Calls());
        using var limit = CancellationTokenSource.CreateLinkedTokenSource(stop);
        limit.CancelAfter(ServeLimit);
        try
        {
            while (await LedShardsAsync(client, limit.Token) < shards)
                await Task.Delay(PollInterval, limit.Token);
        }
        catch (OperationCanceledException) when (!stop.IsCancellationRequested)
        {
            throw new LauncherException(ExitCodes.Unavailable, $"Some shards still have no leader after {ServeLimit.TotalMinutes} minutes. "
                + $"The logs are in {Path.Combine(options.Folder, "run")}. The data are kept; start again to retry.");
        }
    }

    /// <summary>Puts the records of the sample, also those that exist already.</summary>
    /// <returns>Their number.</returns>
    /// <exception cref="LauncherException">It took too long.</exception>
    public async Task<int> LoadSampleAsync(CancellationToken stop)
    {
        var client = new Kv.KvClient(_router.Calls());
        var records = SampleData.Records().ToArray();
        using var limit = CancellationTokenSource.CreateLinkedTokenSource(stop);
        limit.CancelAfter(ServeLimit);
        try
        {
            await Parallel.ForEachAsync(
                records, new ParallelOptions { MaxDegreeOfParallelism = SampleWritesOpen, CancellationToken = limit.Token }, async (record, cancellation) =>
                    await PutUntilAcknowledgedAsync(
                        client, new PutRequest { Key = ByteString.CopyFromUtf8(record.Key), Value = ByteString.CopyFromUtf8(record.Value) }, cancellation));
        }
        catch (OperationCanceledException) when (!stop.IsCancellationRequested)
        {
            throw new LauncherException(ExitCodes.Unavailable, $"The sample was not loaded completely within {ServeLimit.TotalMinutes} minutes. "
                + $"The logs are in {Path.Combine(options.Folder, "run")}. Start again to retry.");
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

    // The leader of a shard may change meanwhile. Repeating the same put is harmless, whatever the outcome of the first one.
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

    // Unknown: the leader was deposed before it knew whether the change is committed.
    private static bool IsPassing(RpcException e) =>
        e.StatusCode is StatusCode.Unavailable or StatusCode.DeadlineExceeded or StatusCode.ResourceExhausted or StatusCode.Cancelled or StatusCode.Unknown;

    private static async Task<int> LedShardsAsync(Cluster.ClusterClient client, CancellationToken stop)
    {
        try
        {
            var status = await client.GetStatusAsync(new GetStatusRequest(), deadline: DateTime.UtcNow + CallLimit, cancellationToken: stop);
            return status.Nodes.SelectMany(node => node.Replicas)
                .Where(replica => replica.Role == Role.Leader).Select(replica => replica.Route.Shard).Distinct().Count();
        }
        catch (RpcException e) when (IsPassing(e))
        {
            // The cluster is not up yet. The caller's limit ends the wait.
            stop.ThrowIfCancellationRequested();
            return 0;
        }
    }
}
