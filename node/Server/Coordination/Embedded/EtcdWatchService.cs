// etcd's Watch service over an embedded coordinator. A stream carries several watches, each a loop of its own that waits for changes; they
// write in turn. All end with the stream.
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Internal.Etcd;

namespace KvCluster.Node.Coordination.Embedded;

/// <summary>etcd's Watch service.</summary>
internal sealed class EtcdWatchService(EmbeddedCoordinator coordinator) : Watch.WatchBase
{
    /// <summary>Maximum number of watches on one stream.</summary>
    private const int WatchesMax = 1_000;

    public override async Task Watch(
        IAsyncStreamReader<WatchRequest> requestStream, IServerStreamWriter<WatchResponse> responseStream, ServerCallContext context)
    {
        using var ending = CancellationTokenSource.CreateLinkedTokenSource(context.CancellationToken);
        using var turn = new SemaphoreSlim(1);
        var watches = new Dictionary<long, (CancellationTokenSource Cancellation, Task Running)>();
        try
        {
            while (await requestStream.MoveNext(context.CancellationToken).ConfigureAwait(false))
                await HandleAsync(requestStream.Current).ConfigureAwait(false);
        }
        finally
        {
            await ending.CancelAsync().ConfigureAwait(false);
            await Task.WhenAll(watches.Values.Select(watch => watch.Running)).ConfigureAwait(false);
        }

        async Task HandleAsync(WatchRequest request)
        {
            switch (request.RequestUnionCase)
            {
                case WatchRequest.RequestUnionOneofCase.CreateRequest:
                    if (watches.Count == WatchesMax)
                        throw new RpcException(new Status(StatusCode.ResourceExhausted, $"A stream has at most {WatchesMax} watches."));
                    var id = request.CreateRequest.WatchId != 0 ? request.CreateRequest.WatchId : watches.Count == 0 ? 0 : watches.Keys.Max() + 1;
                    var cancellation = CancellationTokenSource.CreateLinkedTokenSource(ending.Token);
                    if (!watches.TryAdd(id, (cancellation, RunAsync(id, request.CreateRequest, WriteAsync, cancellation.Token))))
                        throw new RpcException(new Status(StatusCode.InvalidArgument, $"The watch {id} already exists."));
                    break;
                case WatchRequest.RequestUnionOneofCase.CancelRequest when watches.Remove(request.CancelRequest.WatchId, out var watch):
                    await watch.Cancellation.CancelAsync().ConfigureAwait(false);
                    await watch.Running.ConfigureAwait(false);
                    await WriteAsync(new WatchResponse { WatchId = request.CancelRequest.WatchId, Canceled = true }).ConfigureAwait(false);
                    break;
                case WatchRequest.RequestUnionOneofCase.ProgressRequest:
                    await WriteAsync(new WatchResponse { WatchId = -1 }).ConfigureAwait(false);
                    break;
            }
        }

        async Task WriteAsync(WatchResponse response)
        {
            await turn.WaitAsync(ending.Token).ConfigureAwait(false);
            try
            {
                response.Header ??= coordinator.Header();
                await responseStream.WriteAsync(response).ConfigureAwait(false);
            }
            finally
            {
                turn.Release();
            }
        }
    }

    // Never fails: a watch ends with a message that gives the reason, or with its stream.
    private async Task RunAsync(long id, WatchCreateRequest request, Func<WatchResponse, Task> write, CancellationToken cancellationToken)
    {
        try
        {
            var header = coordinator.Header();
            var from = request.StartRevision > 0 ? request.StartRevision : header.Revision + 1;
            await write(new WatchResponse { Header = header, WatchId = id, Created = true }).ConfigureAwait(false);
            while (true)
            {
                var changes = await coordinator.ReadChangesAsync(request.Key, request.RangeEnd ?? ByteString.Empty, from, cancellationToken)
                    .ConfigureAwait(false);
                from = changes.Header.Revision + 1;
                changes.WatchId = id;
                if (changes.Events.Count > 0)
                    await write(changes).ConfigureAwait(false);
            }
        }
        catch (CoordinatorCompactedException compacted)
        {
            await TryWriteAsync(new WatchResponse
            {
                WatchId = id, Canceled = true, CompactRevision = compacted.KeptFrom, CancelReason = compacted.Message
            }).ConfigureAwait(false);
        }
        catch (CoordinatorUnavailableException stopped)
        {
            await TryWriteAsync(
                new WatchResponse { Header = new ResponseHeader(), WatchId = id, Canceled = true, CancelReason = stopped.Message }).ConfigureAwait(false);
        }
        catch (Exception failure) when (failure is OperationCanceledException or RpcException or InvalidOperationException)
        {
            // The stream or the watch has ended.
            return;
        }

        async Task TryWriteAsync(WatchResponse last)
        {
            try
            {
                await write(last).ConfigureAwait(false);
            }
            catch (Exception failure)
                when (failure is OperationCanceledException or RpcException or InvalidOperationException or CoordinatorUnavailableException)
            {
                // Nobody is left to receive the message.
                return;
            }
        }
    }
}
