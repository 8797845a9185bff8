using System.Runtime.CompilerServices;
using System.Runtime.ExceptionServices;
using System.Threading.Channels;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// A watch over all shards of its range at once, each at its leader, or at another replica after that has failed, merged into one stream. A stream that breaks, or
/// is silent for longer than a node ever is, is opened again elsewhere, after what was received. The watch ends if the journal does not have what follows, or no
/// replica of a shard answers for the time allowed. Used by the client library and the router; each walk once.
/// </summary>
/// <remarks>
/// A watch that begins anew passes nothing on before each of its shards has told where it begins. So whoever has seen an event has a position of every shard, and
/// misses nothing when resuming from them.
/// </remarks>
internal sealed class WatchWalk(CallRouter calls, NodeChannels channels, TimeSpan patience)
{
    /// <summary>Nodes send something once a second. Longer than a pause of the garbage collector, and short enough that callers lose no more than five seconds.</summary>
    private static readonly TimeSpan SilenceMax = TimeSpan.FromSeconds(3);

    /// <summary>A message without content is sent while the beginning of other shards is awaited, so that the caller does not give up.</summary>
    private static readonly TimeSpan SignInterval = TimeSpan.FromSeconds(1);

    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(50);
    private const int PausesMax = 10;

    /// <summary>How long a watch that has begun looks for a replica that can go on. There are outages that end.</summary>
    private static readonly TimeSpan PatienceLater = TimeSpan.FromMinutes(1);

    /// <summary>Messages of all shards that wait for the reader. A node sends no further one while a message cannot be passed on.</summary>
    private const int MessagesMax = 4;

    private readonly Channel<WatchResponse> _messages = Channel.CreateBounded<WatchResponse>(MessagesMax);
    private readonly Lock _lock = new();
    private readonly List<WatchResponse> _beginnings = [];
    private readonly TaskCompletionSource _begun = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private int _notBegun;
    private long _bytesHeld;
    private Exception? _failure;

    /// <summary>Told of each message's size in bytes when it is received. <see cref="Passed"/> follows when the reader is done with it, or the watch ends.</summary>
    public Action<long> Received { get; init; } = static _ => { };

    /// <inheritdoc cref="Received"/>
    public Action<long> Passed { get; init; } = static _ => { };

    /// <summary>The messages of all shards. One without position and events only shows that the watch lives.</summary>
    /// <exception cref="RpcException">The watch cannot go on.</exception>
    public async IAsyncEnumerable<WatchResponse> MessagesAsync(WatchRequest request, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        using var ended = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        var running = RunAsync(request, ended.Token);
        try
        {
            await foreach (var message in _messages.Reader.ReadAllAsync(cancellationToken).ConfigureAwait(false))
            {
                yield return message;
                Release(message.CalculateSize());
            }
            await running.ConfigureAwait(false);
        }
        finally
        {
            await ended.CancelAsync().ConfigureAwait(false);
            await running.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            // What was received and not read.
            Release(Volatile.Read(ref _bytesHeld));
        }
    }

    private void Hold(int bytes)
    {
        Interlocked.Add(ref _bytesHeld, bytes);
        Received(bytes);
    }

    private void Release(long bytes)
    {
        Interlocked.Add(ref _bytesHeld, -bytes);
        Passed(bytes);
    }

    private async Task RunAsync(WatchRequest request, CancellationToken cancellationToken)
    {
        using var failed = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        try
        {
            var parts = await DivideAsync(request, cancellationToken).ConfigureAwait(false);
            _notBegun = parts.Count(static part => !part.HasBegun);
            if (_notBegun == 0)
                _begun.TrySetResult();
            var following = parts.Select(part => FollowOrEndAsync(part, failed)).Append(ShowLifeAsync(failed.Token)).ToArray();
            await Task.WhenAll(following).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            // The failure that ended the others.
            if (_failure is { } failure)
                ExceptionDispatchInfo.Throw(failure);
        }
        finally
        {
            _messages.Writer.TryComplete();
        }
    }

    private async Task FollowOrEndAsync(Part part, CancellationTokenSource failed)
    {
        try
        {
            await FollowAsync(part, failed.Token).ConfigureAwait(false);
        }
        catch (Exception failure)
        {
            Interlocked.CompareExchange(ref _failure, failure, null);
            await failed.CancelAsync().ConfigureAwait(false);
        }
    }

    // Until all shards have begun.
    private async Task ShowLifeAsync(CancellationToken cancellationToken)
    {
        while (!_begun.Task.IsCompleted)
        {
            await Task.WhenAny(_begun.Task, Task.Delay(SignInterval, cancellationToken)).ConfigureAwait(false);
            cancellationToken.ThrowIfCancellationRequested();
            if (!_begun.Task.IsCompleted)
                await _messages.Writer.WriteAsync(new WatchResponse(), cancellationToken).ConfigureAwait(false);
        }
    }

    /// <summary>The parts of the range in each shard. In gateway mode the router divides it.</summary>
    private async Task<List<Part>> DivideAsync(WatchRequest request, CancellationToken cancellationToken)
    {
        if (!calls.Destinations.NeedMap)
            return [new Part(request.Clone(), request.Start, null)];
        var giveUpMs = Environment.TickCount64 + (long)patience.TotalMilliseconds;
        if (!await calls.WaitForMapAsync(giveUpMs, cancellationToken).ConfigureAwait(false))
            throw CallStatus.Unavailable(calls.MapFailure).ToRpcException();
        while (true)
        {
            var changed = calls.Table.NextChange();
            if (TryDivide(request) is { } parts)
                return parts;
            if (Environment.TickCount64 >= giveUpMs)
                throw CallStatus.Unavailable("the shard map has no shard for a part of the range").ToRpcException();
            await Task.WhenAny(changed, Task.Delay(Pause, cancellationToken)).ConfigureAwait(false);
            cancellationToken.ThrowIfCancellationRequested();
        }
    }

    // Null if the map has a gap.
    private List<Part>? TryDivide(WatchRequest request)
    {
        var (map, parts) = (calls.Table.Map, new List<Part>());
        var bounds = KeyBounds.Of(request.Start.Memory, request.End.Memory, request.Prefix.Memory);
        var start = ByteString.CopyFrom(bounds.Lower.Span);
        while (true)
        {
            if (map.Find(start.Span) is not { } route)
                return null;
            var part = request.Clone();
            if (!request.Exact)
                part.Start = start;
            part.After.Clear();
            if (request.After.FirstOrDefault(position => position.ShardId == route.ShardId) is { } after)
                part.After.Add(after);
            parts.Add(new Part(part, start, route.ShardId));
            if (request.Exact || !bounds.GoesOnBeyond(route.End.Span, reverse: false))
                return parts;
            start = route.End;
        }
    }

    // Ends only with an exception.
    private async Task FollowAsync(Part part, CancellationToken cancellationToken)
    {
        var giveUpMs = Environment.TickCount64 + (long)patience.TotalMilliseconds;
        string? failedAddress = null;
        for (var attempt = 0; ; attempt++)
        {
            var address = await FindAddressAsync(part, attempt, failedAddress, giveUpMs, cancellationToken).ConfigureAwait(false);
            var call = new Kv.KvClient(channels.ForWatches(address)).Watch(part.Request, cancellationToken: cancellationToken);
            try
            {
                // A stream that sends nothing is like one that breaks.
                while (await call.ResponseStream.MoveNext(cancellationToken).WaitAsync(SilenceMax, cancellationToken).ConfigureAwait(false))
                {
                    await PassAsync(part, call.ResponseStream.Current, cancellationToken).ConfigureAwait(false);
                    (attempt, failedAddress) = (0, null);
                    part.Compacted.Clear();
                    giveUpMs = Environment.TickCount64 + (long)Longer(patience, PatienceLater).TotalMilliseconds;
                }
                // No node ends a watch without a reason.
                part.Failure = CallStatus.Unavailable($"{address} ended the stream").ToRpcException();
            }
            catch (TimeoutException)
            {
                part.Failure = CallStatus.Unavailable($"{address} was silent for {SilenceMax.TotalSeconds} seconds").ToRpcException();
            }
            catch (RpcException failure) when (MayGoOn(part, failure, address) && !cancellationToken.IsCancellationRequested)
            {
                part.Failure = failure;
            }
            finally
            {
                call.Dispose();
            }
            failedAddress = address;
            if (Environment.TickCount64 >= giveUpMs)
                throw part.Failure!;
            // The first replica to try next is another one, and need not be waited for.
            if (attempt > 0)
                await Task.Delay(Longer(Pause * Math.Min(attempt, PausesMax), CallStatus.RetryDelayOf(part.Failure!.GetRpcStatus())), cancellationToken).ConfigureAwait(false);
        }
    }

    private static TimeSpan Longer(TimeSpan left, TimeSpan right) => left > right ? left : right;

    private async Task PassAsync(Part part, WatchResponse message, CancellationToken cancellationToken)
    {
        if (message.Position is { } position)
            part.Advance(position);
        var isBeginning = message.Position is not null && !part.HasBegun;
        Hold(message.CalculateSize());
        if (isBeginning)
        {
            part.HasBegun = true;
            await BeginAsync(message, cancellationToken).ConfigureAwait(false);
            return;
        }
        // Entries of the beginning may be passed on; they have no position.
        if (part.HasBegun)
            await _begun.Task.WaitAsync(cancellationToken).ConfigureAwait(false);
        await _messages.Writer.WriteAsync(message, cancellationToken).ConfigureAwait(false);
    }

    private async Task BeginAsync(WatchResponse message, CancellationToken cancellationToken)
    {
        lock (_lock)
        {
            _beginnings.Add(message);
            if (--_notBegun > 0)
                return;
        }
        foreach (var beginning in _beginnings)
            await _messages.Writer.WriteAsync(beginning, cancellationToken).ConfigureAwait(false);
        _beginnings.Clear();
        _begun.TrySetResult();
    }

    // Whether another attempt may succeed.
    private bool MayGoOn(Part part, RpcException failure, string address)
    {
        if (failure.GetRpcStatus()?.GetDetail<RouteHint>() is { } hint)
            calls.Table.Fold(hint);
        if (OperatorOutcomes.WasNotSent(failure))
            calls.Destinations.Pause(address, $"{address}: {failure.Status.Detail}");
        if (failure.StatusCode == StatusCode.OutOfRange)
        {
            // The replicas keep different lengths of journal. It is gone when none of them has it.
            part.Compacted.Add(address);
            return part.Shard is not null && calls.Table.Map.Find(part.Start.Span) is { } route && route.Nodes.Any(node => calls.Table.Nodes.TryGetValue(new NodeId(node), out var other) && !part.Compacted.Contains(other));
        }
        return failure.StatusCode is StatusCode.Unavailable or StatusCode.DeadlineExceeded or StatusCode.Aborted or StatusCode.ResourceExhausted or StatusCode.Internal or StatusCode.Cancelled;
    }

    private async Task<string> FindAddressAsync(Part part, int attempt, string? failed, long giveUpMs, CancellationToken cancellationToken)
    {
        while (true)
        {
            var changed = calls.Table.NextChange();
            var route = part.Shard is null ? null : calls.Table.Map.Find(part.Start.Span);
            var destination = ChooseFor(part, route, attempt, failed);
            if (destination.Address is { } address)
                return address;
            if (Environment.TickCount64 >= giveUpMs)
                throw part.Failure ?? CallStatus.Unavailable(destination.Failure!).ToRpcException();
            await Task.WhenAny(changed, Task.Delay(Pause, cancellationToken)).ConfigureAwait(false);
            cancellationToken.ThrowIfCancellationRequested();
        }
    }

    /// <summary>The leader first, which knows soonest what is committed; then replicas and leader in turn, but not the one that has just failed if there is another.</summary>
    private Destination ChooseFor(Part part, ShardRoute? route, int attempt, string? failed)
    {
        var choice = calls.Destinations.ForStream(route, attempt, atAnyReplica: false);
        if (attempt % 2 == 1)
            choice = calls.Destinations.ForStream(route, 0, atAnyReplica: true);
        for (var left = route?.Nodes.Count ?? 1; left > 0 && (choice.Address is null || choice.Address == failed || part.Compacted.Contains(choice.Address)); left--)
            choice = calls.Destinations.ForStream(route, 0, atAnyReplica: true) is { Address: not null } other ? other : choice;
        return choice;
    }

    /// <summary>The part of the range in one shard.</summary>
    /// <param name="request">The request for it.</param>
    /// <param name="start">The key by which its shard is found.</param>
    /// <param name="shard">The shard; null if a router finds it.</param>
    private sealed class Part(WatchRequest request, ByteString start, ShardId? shard)
    {
        public WatchRequest Request => request;

        public ByteString Start => start;

        public ShardId? Shard => shard;

        /// <summary>Whether the reader has, or was given with the request, a position of it.</summary>
        public bool HasBegun { get; set; } = request.After.Count > 0;

        /// <summary>The addresses whose journals do not reach back to the position.</summary>
        public HashSet<string> Compacted { get; } = [];

        /// <summary>Why the last attempt failed.</summary>
        public RpcException? Failure { get; set; }

        /// <summary>The next attempt goes on after what was received. Behind a router there is a position for each shard.</summary>
        public void Advance(Position position)
        {
            for (var index = request.After.Count - 1; index >= 0; index--)
            {
                if (request.After[index].ShardId == position.ShardId)
                    request.After.RemoveAt(index);
            }
            request.After.Add(position);
        }
    }
}
