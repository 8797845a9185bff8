using System.Runtime.CompilerServices;
using System.Runtime.ExceptionServices;
using System.Threading.Channels;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client.Routing;
using KvCluster.V1;
using WatchMessage = KvCluster.Client.Transport.StreamMessage<KvCluster.V1.WatchResponse>;

namespace KvCluster.Client.Transport;

/// <summary>
/// A watch over all shards of its range at once, each at its leader, or at another replica after that has failed, merged into one stream. A stream that breaks,
/// or is silent for longer than a node ever is, is opened again elsewhere, after what was received. The watch ends if the journal does not have what follows,
/// or no replica of a shard answers for the time allowed. Used by the client library and the router; each walk once.
/// </summary>
/// <remarks>
/// A watch that begins anew passes no position on before each of its shards has told where it begins, and nothing else but entries that it begins with. So
/// whoever has seen a change has a position of every shard, and misses nothing when resuming from them. While entries of some shards are still sent, the
/// changes of the others are passed on as a part of the beginning, so that no shard waits for another one and loses its place in the journal.
/// </remarks>
internal sealed class WatchWalk(CallRouter calls, IWatchSource source, TimeSpan patience)
{
    /// <summary>
    /// Nodes send something once a second. Longer than a pause of the garbage collector, and short enough that callers lose no more than five seconds.
    /// </summary>
    private static readonly TimeSpan SilenceMax = TimeSpan.FromSeconds(3);

    /// <summary>A message without content is sent while the beginning of other shards is awaited, so that the caller does not give up.</summary>
    private static readonly TimeSpan SignInterval = TimeSpan.FromSeconds(1);

    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(50);
    private const int PausesMax = 10;

    /// <summary>How long a watch that has begun looks for a replica that can go on. There are outages that end.</summary>
    private static readonly TimeSpan PatienceLater = TimeSpan.FromMinutes(1);

    /// <summary>Messages of all shards that wait for the reader. A node sends no further one while a message cannot be passed on.</summary>
    private const int MessagesMax = 4;

    // A writer that waits for its place always goes on on the thread pool, so in the simulation there is a place for everything.
    private readonly Channel<Passed> _messages = calls.Runtime.ContinuesInline
        ? Channel.CreateUnbounded<Passed>(new UnboundedChannelOptions { SingleReader = true, AllowSynchronousContinuations = true })
        : Channel.CreateBounded<Passed>(new BoundedChannelOptions(MessagesMax) { SingleReader = true });

    /// <summary>The reader has a position of each part.</summary>
    private readonly TaskCompletionSource _begun = calls.Runtime.NewSignal();

    /// <summary>Held to decide that all parts have begun, or that one begins anew.</summary>
    private readonly Lock _lock = new();

    private List<Part> _parts = [];
    private long _bytesHeld;
    private Exception? _failure;

    /// <summary>
    /// Told of each message's size in bytes when it is received. <see cref="Read"/> follows when the reader is done with it, or the watch ends.
    /// </summary>
    public Action<long> Received { get; init; } = static _ => { };

    /// <inheritdoc cref="Received"/>
    public Action<long> Read { get; init; } = static _ => { };

    /// <summary>Waits until there is room for a large message of so many bytes, which is received after that. Returns what gives the room back.</summary>
    public Func<long, CancellationToken, ValueTask<Action>> MakeRoomAsync { get; init; } = static (_, _) => ValueTask.FromResult<Action>(static () => { });

    private TimeProvider Time => calls.Runtime.Time;

    /// <summary>The messages of all shards. One without position, events and what else a watch tells only shows that it lives.</summary>
    /// <exception cref="RpcException">The watch cannot go on.</exception>
    public async IAsyncEnumerable<WatchMessage> MessagesAsync(WatchRequest request, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        using var ended = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        var running = RunAsync(request, ended.Token);
        try
        {
            await foreach (var passed in _messages.Reader.ReadAllAsync(cancellationToken).ConfigureAwait(false))
            {
                foreach (var message in Merge(passed))
                    yield return message;
                Release(passed.Bytes);
            }
            await running.ConfigureAwait(false);
        }
        finally
        {
            await calls.Runtime.CancelAsync(ended).ConfigureAwait(false);
            await running.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            // Returns the room of messages that were received and not read.
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
        Read(bytes);
    }

    private async Task RunAsync(WatchRequest request, CancellationToken cancellationToken)
    {
        using var failed = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        try
        {
            _parts = await DivideAsync(request, cancellationToken).ConfigureAwait(false);
            if (_parts.TrueForAll(static part => part.IsBegun))
                _begun.TrySetResult();
            var following = _parts.Select(part => FollowOrEndAsync(part, failed)).Append(ShowLifeAsync(failed.Token)).ToArray();
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
            await calls.Runtime.CancelAsync(failed).ConfigureAwait(false);
        }
    }

    // Until all shards have begun.
    private async Task ShowLifeAsync(CancellationToken cancellationToken)
    {
        while (!_begun.Task.IsCompleted)
        {
            await Task.WhenAny(_begun.Task, calls.Runtime.DelayAsync(SignInterval, cancellationToken)).ConfigureAwait(false);
            cancellationToken.ThrowIfCancellationRequested();
            if (!_begun.Task.IsCompleted)
                await _messages.Writer.WriteAsync(new Passed(null, 0, WatchMessage.Of(new WatchResponse()), 0), cancellationToken).ConfigureAwait(false);
        }
    }

    /// <summary>The parts of the range in each shard. In gateway mode the router divides it.</summary>
    private async Task<List<Part>> DivideAsync(WatchRequest request, CancellationToken cancellationToken)
    {
        if (!calls.Destinations.NeedMap)
            return [new Part(request.Clone(), request.Start, null)];
        var giveUpMs = calls.Runtime.NowMs + (long)patience.TotalMilliseconds;
        if (!await calls.WaitForMapAsync(giveUpMs, cancellationToken).ConfigureAwait(false))
            throw calls.MapError.ToRpcException();
        while (true)
        {
            var changed = calls.Table.NextChange();
            if (TryDivide(request) is { } parts)
                return parts;
            if (calls.Runtime.NowMs >= giveUpMs)
                throw CallStatus.Unavailable("the shard map has no shard for a part of the range").ToRpcException();
            await Task.WhenAny(changed, calls.Runtime.DelayAsync(Pause, cancellationToken)).ConfigureAwait(false);
            cancellationToken.ThrowIfCancellationRequested();
        }
    }

    // Divides the request among the shards; null if the map has a gap.
    private List<Part>? TryDivide(WatchRequest request)
    {
        var (map, parts) = (calls.Table.Map, new List<Part>());
        // A watch of exactly one key names it in the prefix; start and end are ignored.
        var bounds = request.Exact
            ? new KeyBounds(request.Prefix.Memory, (byte[])[.. request.Prefix.Span, 0])
            : KeyBounds.Of(request.Start.Memory, request.End.Memory, request.Prefix.Memory);
        var start = ByteString.CopyFrom(bounds.Lower.Span);
        while (true)
        {
            if (map.Find(start.Span) is not { } route)
                return null;
            var part = request.Clone();
            if (!request.Exact)
                part.Start = start;
            part.After.Clear();
            part.InitialAfter.Clear();
            if (request.After.FirstOrDefault(position => position.ShardId == route.ShardId) is { } after)
                part.After.Add(after);
            else if (request.InitialAfter.FirstOrDefault(progress => progress.Position?.ShardId == route.ShardId) is { } progress)
                part.InitialAfter.Add(progress);
            var goesOn = !request.Exact && bounds.GoesOnBeyond(route.End.Span, reverse: false);
            parts.Add(new Part(part, start, route.ShardId) { End = goesOn ? route.End : ByteString.CopyFrom(bounds.Upper.Span) });
            if (!goesOn)
                return parts;
            start = route.End;
        }
    }

    // Ends only with an exception.
    private async Task FollowAsync(Part part, CancellationToken cancellationToken)
    {
        var giveUpMs = GiveUpMs(patience);
        string? failedAddress = null;
        for (var attempt = 0; ; attempt++)
        {
            var address = await FindAddressAsync(part, attempt, failedAddress, giveUpMs, cancellationToken).ConfigureAwait(false);
            var call = source.Watch(address, part.Request, cancellationToken);
            try
            {
                // A stream that sends nothing is like one that breaks.
                while (await call.ResponseStream.MoveNext(cancellationToken).WaitAsync(SilenceMax, Time, cancellationToken).ConfigureAwait(false))
                {
                    await PassAsync(part, call.ResponseStream.Current, cancellationToken).ConfigureAwait(false);
                    (attempt, failedAddress) = (0, null);
                    part.Compacted.Clear();
                    giveUpMs = GiveUpMs(Longer(patience, PatienceLater));
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
                part.GiveRoomBack();
                call.Dispose();
            }
            failedAddress = address;
            if (part.MustBeginAnew)
                await BeginAnewAsync(part, cancellationToken).ConfigureAwait(false);
            if (calls.AwakeMs >= giveUpMs)
                throw part.Failure!;
            // The first replica to try next is another one, and need not be waited for.
            if (attempt > 0)
                await calls.Runtime.DelayAsync(
                    Longer(Pause * Math.Min(attempt, PausesMax), CallStatus.RetryDelayOf(part.Failure!.GetRpcStatus())),
                    cancellationToken).ConfigureAwait(false);
        }
    }

    // A process that stood still has tried nothing meanwhile, and learns afterwards only that its connections are broken.
    private long GiveUpMs(TimeSpan time) => calls.AwakeMs + (long)time.TotalMilliseconds;

    private static TimeSpan Longer(TimeSpan left, TimeSpan right) => left > right ? left : right;

    private async Task PassAsync(Part part, WatchMessage message, CancellationToken cancellationToken)
    {
        part.GiveRoomBack();
        if (message.Head.NextBytes > 0)
        {
            part.HoldRoom(await MakeRoomAsync((long)message.Head.NextBytes, cancellationToken).ConfigureAwait(false));
            return;
        }
        // The changes of a shard wait for the beginning of the others, which takes no time, unless it has entries.
        if (part.HasBegun && part.Shard is not null && !part.Request.Initial)
            await _begun.Task.WaitAsync(cancellationToken).ConfigureAwait(false);
        part.Advance(message);
        await PassAsync(part, part.Incarnation, message, cancellationToken).ConfigureAwait(false);
    }

    private ValueTask PassAsync(Part part, int incarnation, WatchMessage message, CancellationToken cancellationToken)
    {
        Hold(message.Bytes);
        return _messages.Writer.WriteAsync(new Passed(part, incarnation, message, message.Bytes), cancellationToken);
    }

    /// <summary>What becomes of a part's message in the merged stream. Called by the reader, for one message after the other.</summary>
    private IEnumerable<WatchMessage> Merge(Passed passed)
    {
        var message = passed.Message;
        if (passed.Part is not { } part || _begun.Task.IsCompleted)
            return [message];
        if (part.Shard is null)
        {
            // A router has waited for the shards.
            if (message.Head.Position is not null)
                _begun.TrySetResult();
            return [message];
        }
        if (message.Head.Position is null)
            return [message];
        part.Told = message.Head.Position;
        lock (_lock)
        {
            part.IsBegun |= part.Incarnation == passed.Incarnation;
            if (_parts.TrueForAll(static one => one.IsBegun))
                _begun.TrySetResult();
        }
        return _begun.Task.IsCompleted ? Complete(part, message) : message.Count > 0 || message.Head.Initial ? [WithoutPosition(message)] : [];
    }

    // The positions of all other shards come first. The message of the last shard, with its events, comes with the last position.
    private IEnumerable<WatchMessage> Complete(Part last, WatchMessage message)
    {
        message.Head.InitialComplete = message.Head.Initial = last.Request.Initial;
        return _parts.Where(part => part != last && part.Told is not null)
            .Select(part => WatchMessage.Of(new WatchResponse { Position = part.Told, Initial = last.Request.Initial, MorePositions = true }))
            .Append(message.WithHead(message.Head));
    }

    private static WatchMessage WithoutPosition(WatchMessage message) =>
        message.WithHead(new WatchResponse { Initial = true, Progress = new InitialProgress { Position = message.Head.Position, Complete = true } });

    /// <summary>The journal does not have what a beginning lacks, so the entries of its shard begin anew. The reader forgets those that it has.</summary>
    private async Task BeginAnewAsync(Part part, CancellationToken cancellationToken)
    {
        lock (_lock)
        {
            if (_begun.Task.IsCompleted)
                throw part.Failure!;
            part.BeginAnew();
        }
        var forget = new ForgottenRange { Shard = part.Shard?.Value ?? 0, Start = part.Start, End = part.End };
        await PassAsync(part, part.Incarnation, WatchMessage.Of(new WatchResponse { Forget = forget }), cancellationToken).ConfigureAwait(false);
    }

    // Whether another attempt may succeed.
    private bool MayGoOn(Part part, RpcException failure, string address)
    {
        RouteHints.Fold(calls.Table, failure);
        if (OperatorOutcomes.WasNotSent(failure))
            calls.Destinations.Pause(address, $"{address}: {failure.Status.Detail}");
        if (failure.StatusCode == StatusCode.OutOfRange)
        {
            // The replicas keep different lengths of journal. It is gone when none of them has it.
            part.Compacted.Add(address);
            if (part.Shard is null)
                return false;
            var nodes = calls.Table.Map.Find(part.Start.Span)?.Nodes ?? [];
            if (nodes.Any(node => calls.Table.Nodes.TryGetValue(new NodeId(node), out var other) && !part.Compacted.Contains(other)))
                return true;
            return part.IsCompacted = part.HasEntries && !_begun.Task.IsCompleted;
        }
        // Another cluster has the address of a node, and the map learns where the node is now. The address of a router stays as it is.
        if (ClusterHeader.IsForeign(failure))
            return part.Shard is not null;
        return failure.StatusCode is StatusCode.Unavailable
            or StatusCode.DeadlineExceeded or StatusCode.Aborted or StatusCode.ResourceExhausted or StatusCode.Internal or StatusCode.Cancelled;
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
            if (calls.LastingError is { } unusable)
                throw unusable.ToRpcException();
            if (calls.AwakeMs >= giveUpMs)
                throw part.Failure ?? CallStatus.Unavailable(destination.Failure!).ToRpcException();
            await Task.WhenAny(changed, calls.Runtime.DelayAsync(Pause, cancellationToken)).ConfigureAwait(false);
            cancellationToken.ThrowIfCancellationRequested();
        }
    }

    /// <summary>
    /// The leader first, which knows soonest what is committed; then replicas and leader in turn, but not the one that has just failed if there is another.
    /// </summary>
    private Destination ChooseFor(Part part, ShardRoute? route, int attempt, string? failed)
    {
        var choice = calls.Destinations.ForStream(route, attempt, atAnyReplica: false);
        if (attempt % 2 == 1)
            choice = calls.Destinations.ForStream(route, 0, atAnyReplica: true);
        for (var left = route?.Nodes.Count ?? 1; left > 0
            && (choice.Address is null || choice.Address == failed || part.Compacted.Contains(choice.Address)); left--)
            choice = calls.Destinations.ForStream(route, 0, atAnyReplica: true) is { Address: not null } other ? other : choice;
        return choice;
    }

    /// <summary>A message on its way to the reader.</summary>
    /// <param name="Part">Whose; null: it only shows life.</param>
    /// <param name="Incarnation"><see cref="WatchWalk.Part.Incarnation"/> when it was received.</param>
    /// <param name="Message">The message.</param>
    /// <param name="Bytes">What was counted for it.</param>
    private readonly record struct Passed(Part? Part, int Incarnation, WatchMessage Message, int Bytes);

    /// <summary>The part of the range in one shard.</summary>
    /// <param name="request">The request for it.</param>
    /// <param name="start">The key by which its shard is found.</param>
    /// <param name="shard">The shard; null if a router finds it.</param>
    private sealed class Part(WatchRequest request, ByteString start, ShardId? shard)
    {
        private readonly bool _goesOn = request.After.Count > 0;
        private Action? _giveRoomBack;
        private bool _hasPassed;

        public WatchRequest Request => request;

        public ByteString Start => start;

        /// <summary>Where the range ends in the shard; empty: it has no end.</summary>
        public ByteString End { get; init; } = ByteString.Empty;

        public ShardId? Shard => shard;

        /// <summary>Whether a position of it was received, or given with the request.</summary>
        public bool HasBegun => request.After.Count > 0;

        /// <summary>Whether the reader has its beginning, but perhaps not yet its position. Changed under the walk's lock.</summary>
        public bool IsBegun { get; set; } = request.After.Count > 0;

        /// <summary>Counts how often it has begun anew. Changed under the walk's lock.</summary>
        public int Incarnation { get; private set; }

        /// <summary>The position of what was passed to the reader; null: unknown. Used by the reader.</summary>
        public Position? Told { get; set; } = request.After.FirstOrDefault();

        /// <summary>Whether it begins with entries, and not after a position that the reader has.</summary>
        public bool HasEntries => request.Initial && !_goesOn;

        /// <summary>No journal has what its beginning lacks.</summary>
        public bool IsCompacted { get; set; }

        /// <summary>Whether its entries must begin anew; also when a server does not say how far they have come.</summary>
        public bool MustBeginAnew => IsCompacted || (_hasPassed && HasEntries && request.InitialAfter.Count == 0 && request.After.Count == 0);

        /// <summary>The addresses whose journals do not reach back to the position.</summary>
        public HashSet<string> Compacted { get; } = [];

        /// <summary>Why the last attempt failed.</summary>
        public RpcException? Failure { get; set; }

        /// <summary>The next attempt goes on after what was received. Behind a router there is a position for each shard.</summary>
        public void Advance(WatchMessage received)
        {
            var message = received.Head;
            _hasPassed |= message.Initial;
            if (message.Forget is { } forgotten)
                RemoveProgress(forgotten.Shard);
            if (message.Progress?.Position is { } reached)
            {
                RemoveProgress(reached.Shard);
                // A shard that goes on after a position has no entries.
                if (request.After.Any(position => position.Shard == reached.Shard))
                    Advance(reached);
                else
                    request.InitialAfter.Add(message.Progress);
            }
            if (message.Position is not { } newest)
                return;
            RemoveProgress(newest.Shard);
            Advance(newest);
        }

        /// <summary>Forgets what was received of a beginning.</summary>
        public void BeginAnew()
        {
            Incarnation++;
            request.After.Clear();
            request.InitialAfter.Clear();
            (IsBegun, IsCompacted, _hasPassed) = (false, false, false);
            Compacted.Clear();
        }

        /// <summary>There is room for its next message.</summary>
        public void HoldRoom(Action giveBack) => _giveRoomBack = giveBack;

        /// <summary>Gives that room back, if there is any, because the message is counted, or does not come.</summary>
        public void GiveRoomBack()
        {
            _giveRoomBack?.Invoke();
            _giveRoomBack = null;
        }

        private void Advance(Position position)
        {
            for (var index = request.After.Count - 1; index >= 0; index--)
            {
                if (request.After[index].Shard == position.Shard)
                    request.After.RemoveAt(index);
            }
            request.After.Add(position);
        }

        private void RemoveProgress(uint ofShard)
        {
            for (var index = request.InitialAfter.Count - 1; index >= 0; index--)
            {
                if (request.InitialAfter[index].Position.Shard == ofShard)
                    request.InitialAfter.RemoveAt(index);
            }
        }
    }
}
