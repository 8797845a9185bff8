// The coordinator behind etcd's API: etcd itself, or an embedded one that another process serves. Each change is sent once; where its answer
// is lost, that is said. Every answer's header is checked: another cluster, or a revision below one seen before the request was sent, means a
// restored or replaced store, and from then on nothing is changed any more.
using System.Runtime.CompilerServices;
using Etcdserverpb;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Node.Shards;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Coordination;

/// <summary>A client of etcd's API. Thread-safe.</summary>
internal sealed class EtcdCoordinator : ICoordinator
{
    /// <summary>For one request: longer than an election of etcd's own.</summary>
    private static readonly TimeSpan RequestTime = TimeSpan.FromSeconds(3);

    // A member of etcd that has lost its leader ends the watch instead of leaving it silent.
    private static readonly Metadata RequireLeader = new() { { "hasleader", "true" } };

    private readonly GrpcChannel _channel;
    private readonly KV.KVClient _kv;
    private readonly Watch.WatchClient _watch;
    private readonly Lease.LeaseClient _lease;
    private readonly EtcdHeaderCheck _check;

    /// <param name="address">"http://host:port".</param>
    public EtcdCoordinator(string address, ILogger log)
    {
        _channel = GrpcChannel.ForAddress(address, new GrpcChannelOptions
        {
            DisposeHttpClient = true,
            HttpHandler = new SocketsHttpHandler
            {
                UseProxy = false,
                AllowAutoRedirect = false,
                ConnectTimeout = RequestTime,
                KeepAlivePingDelay = TimeSpan.FromSeconds(5),
                KeepAlivePingTimeout = TimeSpan.FromSeconds(5),
                KeepAlivePingPolicy = HttpKeepAlivePingPolicy.WithActiveRequests,
            },
        });
        _kv = new KV.KVClient(_channel);
        _watch = new Watch.WatchClient(_channel);
        _lease = new Lease.LeaseClient(_channel);
        _check = new EtcdHeaderCheck(log);
    }

    public async Task<CoordinatorRead> GetAsync(string key, CancellationToken cancellationToken) =>
        EtcdRequests.ToRead(await RangeAsync(EtcdRequests.Get(key), cancellationToken).ConfigureAwait(false));

    public async Task<CoordinatorList> ListAsync(string prefix, CancellationToken cancellationToken) =>
        EtcdRequests.ToList(await RangeAsync(EtcdRequests.List(prefix), cancellationToken).ConfigureAwait(false));

    public async Task<CompareAndSetResult> CompareAndSetAsync(string key, long expectedRevision, string? value, long lease, CancellationToken cancellationToken)
    {
        _check.ThrowIfAlarmed();
        var before = _check.RevisionSeen;
        TxnResponse response;
        try
        {
            response = await _kv.TxnAsync(EtcdRequests.CompareAndSet(key, expectedRevision, value, lease), Options(cancellationToken)).ConfigureAwait(false);
        }
        catch (RpcException failure) when (failure.StatusCode is StatusCode.InvalidArgument or StatusCode.NotFound or StatusCode.Unimplemented)
        {
            // etcd refuses these before it proposes anything: the lease is gone, or the request is not served.
            throw new CoordinatorUnavailableException(failure.Status.Detail, failure);
        }
        catch (Exception failure) when (failure is RpcException or OperationCanceledException)
        {
            cancellationToken.ThrowIfCancellationRequested();
            return new CompareAndSetResult(CompareAndSetOutcome.Unknown, 0);
        }
        _check.Check(response.Header, before);
        return new CompareAndSetResult(response.Succeeded ? CompareAndSetOutcome.Won : CompareAndSetOutcome.Lost, response.Header.Revision);
    }

    public async IAsyncEnumerable<IReadOnlyList<CoordinatorChange>> WatchAsync(
        string prefix, long fromRevision, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var key = ByteString.CopyFromUtf8(prefix);
        var create = new WatchCreateRequest { Key = key, RangeEnd = EtcdRequests.EndOfPrefix(key), StartRevision = fromRevision };
        using var call = _watch.Watch(RequireLeader, cancellationToken: cancellationToken);
        await StartAsync(call, create, cancellationToken).ConfigureAwait(false);
        while (true)
        {
            var response = await NextAsync(call, cancellationToken).ConfigureAwait(false);
            if (response.CompactRevision > 0)
                throw new CoordinatorCompactedException(response.CompactRevision);
            if (response.Canceled)
                throw new CoordinatorUnavailableException($"The watch was cancelled: {response.CancelReason}");
            if (response.Events.Count > 0)
                yield return EtcdRequests.ToChanges(response.Events);
        }
    }

    public async Task<long> GrantLeaseAsync(TimeSpan timeToLive, CancellationToken cancellationToken)
    {
        _check.ThrowIfAlarmed();
        var request = new LeaseGrantRequest { TTL = (long)Math.Ceiling(timeToLive.TotalSeconds) };
        // A grant whose answer is lost ends by itself.
        var response = await AskAsync(() => _lease.LeaseGrantAsync(request, Options(cancellationToken)).ResponseAsync, cancellationToken).ConfigureAwait(false);
        return response.ID;
    }

    public async Task<bool> KeepAliveAsync(long lease, CancellationToken cancellationToken)
    {
        var response = await AskAsync(
            async () =>
            {
                using var call = _lease.LeaseKeepAlive(Options(cancellationToken));
                await call.RequestStream.WriteAsync(new LeaseKeepAliveRequest { ID = lease }).ConfigureAwait(false);
                if (!await call.ResponseStream.MoveNext(cancellationToken).ConfigureAwait(false))
                    throw new CoordinatorUnavailableException("The keep-alive ended without an answer.");
                return call.ResponseStream.Current;
            },
            cancellationToken).ConfigureAwait(false);
        return response.TTL > 0;
    }

    public async Task RevokeAsync(long lease, CancellationToken cancellationToken)
    {
        try
        {
            await _lease.LeaseRevokeAsync(new LeaseRevokeRequest { ID = lease }, Options(cancellationToken)).ConfigureAwait(false);
        }
        catch (RpcException failure) when (failure.StatusCode == StatusCode.NotFound)
        {
            // It has ended already, which is what is asked for.
            return;
        }
        catch (RpcException failure)
        {
            throw Unavailable(failure, cancellationToken);
        }
    }

    public ValueTask DisposeAsync()
    {
        _channel.Dispose();
        return ValueTask.CompletedTask;
    }

    private static CallOptions Options(CancellationToken cancellationToken) =>
        new(deadline: DateTime.UtcNow + RequestTime, cancellationToken: cancellationToken);

    private static Exception Unavailable(RpcException failure, CancellationToken cancellationToken) => cancellationToken.IsCancellationRequested
        ? new OperationCanceledException(cancellationToken)
        : new CoordinatorUnavailableException($"The coordinator does not answer: {failure.StatusCode} {failure.Status.Detail}", failure);

    private static async Task<T> AskAsync<T>(Func<Task<T>> ask, CancellationToken cancellationToken)
    {
        try
        {
            return await ask().ConfigureAwait(false);
        }
        catch (RpcException failure)
        {
            throw Unavailable(failure, cancellationToken);
        }
    }

    private async Task<RangeResponse> RangeAsync(RangeRequest request, CancellationToken cancellationToken)
    {
        var before = _check.RevisionSeen;
        var response = await AskAsync(() => _kv.RangeAsync(request, Options(cancellationToken)).ResponseAsync, cancellationToken).ConfigureAwait(false);
        _check.Check(response.Header, before);
        return response;
    }

    private static async Task StartAsync(AsyncDuplexStreamingCall<WatchRequest, WatchResponse> call, WatchCreateRequest create, CancellationToken cancellationToken)
    {
        try
        {
            await call.RequestStream.WriteAsync(new WatchRequest { CreateRequest = create }).ConfigureAwait(false);
        }
        catch (RpcException failure)
        {
            throw Unavailable(failure, cancellationToken);
        }
    }

    private async Task<WatchResponse> NextAsync(AsyncDuplexStreamingCall<WatchRequest, WatchResponse> call, CancellationToken cancellationToken)
    {
        try
        {
            if (!await call.ResponseStream.MoveNext(cancellationToken).ConfigureAwait(false))
                throw new CoordinatorUnavailableException("The watch ended.");
        }
        catch (RpcException failure)
        {
            throw Unavailable(failure, cancellationToken);
        }
        // A watch lags behind other answers, so only its cluster says something.
        _check.Check(call.ResponseStream.Current.Header, notBelow: 0);
        return call.ResponseStream.Current;
    }
}
