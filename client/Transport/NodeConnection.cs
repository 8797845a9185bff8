using System.Runtime.CompilerServices;
using System.Threading.Channels;
using Grpc.Net.Client;
using KvCluster.Client.Telemetry;
using KvCluster.Tls;
using Microsoft.Extensions.Logging;

namespace KvCluster.Client.Transport;

/// <summary>
/// The connection to one node for the calls of all callers. Its stream (<see cref="CallStream"/>) is opened with the first call. After a break, the
/// first call after a pause, which grows, opens it again. Calls during the pause fail at once, so that nobody waits for a dead node. Nothing is sent before
/// the connection is established. If that takes long, calls that may try another node do so while the connection is still being made. When the stream breaks,
/// all open calls are answered at once, as sent or not sent. The node is told which calls were cancelled by their callers. Thread-safe.
/// </summary>
internal sealed class NodeConnection : INodeConnection
{
    private const int ReplyBytesMax = 64 << 20;

    /// <summary>
    /// A host that is gone does not even refuse connections. After this time the next node is tried concurrently, as in RFC 8305. Connecting to the
    /// other side of the world takes less.
    /// </summary>
    private const int SlowMs = 250;

    private static readonly TimeSpan SweepInterval = TimeSpan.FromMilliseconds(100);
    private static readonly TimeSpan PauseMin = TimeSpan.FromMilliseconds(50);
    private static readonly TimeSpan PauseMax = TimeSpan.FromMilliseconds(500);

    private static readonly CallAnswer Closed = new(null, false, "the client is closed", false);

    /// <summary>The cluster that its streams are meant for.</summary>
    public ExpectedCluster Cluster { get; init; } = new();

    /// <summary>Returns the header of requests to an address by which the program authorizes itself; null: none has it.</summary>
    public Func<Uri, CancellationToken, ValueTask<string?>>? Authorization { get; init; }

    private readonly string _address;
    private readonly TlsConnector _connector;
    private readonly ILogger _log;
    private readonly Channel<CallStream.Entry> _queue = Channel.CreateUnbounded<CallStream.Entry>(new UnboundedChannelOptions { SingleReader = true });
    private readonly OutstandingCalls _open;
    private readonly CancellationTokenSource _disposed = new();
    private readonly Task _running;
    private volatile string _failure = "";
    private readonly TimeSpan _connectTimeMax;
    private long _pausedUntilMs;

    // When the connection attempt began; 0 if none is in progress.
    private long _connectingSinceMs;

    /// <param name="address">The node's address.</param>
    /// <param name="connector">Makes connections to it.</param>
    /// <param name="callsInFlightMax">The number of places for open calls.</param>
    /// <param name="log">Gets what no caller is told.</param>
    /// <param name="connectTimeMax">The longest time that a connection attempt may take.</param>
    public NodeConnection(string address, TlsConnector connector, int callsInFlightMax, ILogger log, TimeSpan connectTimeMax)
    {
        _connectTimeMax = connectTimeMax;
        _address = address;
        _connector = connector;
        _log = log;
        _open = new OutstandingCalls(callsInFlightMax, id => _queue.Writer.TryWrite(new CallStream.Entry(null, id)));
        _running = RunAsync();
    }

    /// <inheritdoc/>
    public bool IsPaused => IsBroken || IsSlow;

    /// <inheritdoc/>
    public bool IsSlow => Volatile.Read(ref _connectingSinceMs) is var since && since != 0 && Environment.TickCount64 - since >= SlowMs;

    /// <inheritdoc/>
    public string Failure => IsSlow ? NoConnectionYet : _failure;

    // Alone, the calls of one kind to one shard may have half of the bytes.
    private string NoPlace => $"this client had as many calls under way to {_address} as the calls to one shard may be, or as many bytes of requests, "
        + $"{FairPlaces.RequestBytesMax / 2 >> 20} MiB";

    private bool IsBroken => Environment.TickCount64 < Volatile.Read(ref _pausedUntilMs);

    // Includes the failure of the previous attempt, which is most likely the cause of this one too.
    private string NoConnectionYet => $"{_address}: no connection within {SlowMs} ms{(_failure.Length == 0 ? "" : $"; before that {_failure}")}";

    /// <summary>
    /// Sends one call. If too many are open, it first waits for a place, for three quarters of its time at most. It is answered by its deadline at the latest.
    /// </summary>
    [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
    public async ValueTask<CallAnswer> CallAsync(PendingCall call, CancellationToken cancellationToken)
    {
        if (IsBroken)
            return new CallAnswer(null, false, _failure, false);
        if (IsSlow && !call.IsPatient)
            return new CallAnswer(null, false, NoConnectionYet, false);
        if (!_open.TryTakePlace(call) && await _open.TakePlaceAsync(call, cancellationToken).ConfigureAwait(false) is { } placeAfter)
            return new CallAnswer(null, false, NoPlace, false) { PlaceAfter = placeAfter };
        // A place has at most two entries, a call and the cancellation of an earlier one, so the queue is bounded too. While there is no connection, calls that
        // left for another node have entries as well; that is no more than were waiting when it became slow.
        _open.Add(call);
        if (!_queue.Writer.TryWrite(new CallStream.Entry(call, default)))
        {
            // Callers that wait for the place then get the same answer at once instead of waiting until their deadlines.
            _open.Withdraw(call.Id);
            return Closed;
        }
        CallAnswer answer;
        // Disposing the registration waits for a cancellation in progress, so nothing refers to the call afterwards.
        using (cancellationToken.UnsafeRegister(static state => Cancel((PendingCall)state!), call))
            answer = await call.Answer.ConfigureAwait(false);
        // A call that ended without a reply may still be in the queue or in a message being written. It is not pooled again but left to the garbage collector.
        if (answer.Reply is not null)
            call.Return();
        return answer;
    }

    public async ValueTask DisposeAsync()
    {
        _queue.Writer.TryComplete();
        await _disposed.CancelAsync().ConfigureAwait(false);
        await _running.ConfigureAwait(false);
        _disposed.Dispose();
    }

    private static void Cancel(PendingCall call) => call.OpenIn!.Cancel(call.Id);

    private async Task RunAsync()
    {
        using var sweeper = new Timer(_ => Sweep(), null, SweepInterval, SweepInterval);
        var pause = PauseMin;
        while (await WaitForCallAsync().ConfigureAwait(false))
        {
            var opened = Environment.TickCount64;
            Volatile.Write(ref _connectingSinceMs, opened);
            ClientMetrics.ConnectionBegins();
            _failure = await ExchangeOrFailAsync().ConfigureAwait(false);
            ClientMetrics.ConnectionEnded(isLost: !_disposed.IsCancellationRequested);
            if (_disposed.IsCancellationRequested)
                break;
            var closed = Environment.TickCount64;
            Volatile.Write(ref _connectingSinceMs, 0);
            pause = closed - opened > PauseMax.TotalMilliseconds ? PauseMin : Min(pause * 2, PauseMax);
            Volatile.Write(ref _pausedUntilMs, closed + (long)pause.TotalMilliseconds);
            FailAll(_failure);
        }
        FailAll("the client is closed");
    }

    private void Sweep()
    {
        _open.Expire(Environment.TickCount64);
        if (IsSlow)
            _open.FailImpatient(NoConnectionYet);
    }

    private static TimeSpan Min(TimeSpan left, TimeSpan right) => left < right ? left : right;

    private async Task<bool> WaitForCallAsync()
    {
        try
        {
            return await _queue.Reader.WaitToReadAsync(_disposed.Token).ConfigureAwait(false);
        }
        catch (OperationCanceledException)
        {
            return false;
        }
    }

    private async Task<string> ExchangeOrFailAsync()
    {
        try
        {
            return await ExchangeAsync().ConfigureAwait(false);
        }
        catch (Exception failure)
        {
            // A bug, or an invalid address. Without this catch the loop would end, and every later call to the node would wait until its deadline.
            ClientMetrics.Unexpected("connection");
            ClientLog.Unexpected(_log, "the stream of calls", _address, failure);
            return $"{_address}: {failure.GetType().Name}: {failure.Message}";
        }
    }

    /// <summary>Connects and runs one stream, from its first call until it breaks, and returns why it did.</summary>
    private async Task<string> ExchangeAsync()
    {
        var connected = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        using var handler = new LargeMessageHandler(
            NodeHandler.Create(
                async (context, cancellationToken) =>
                {
                    var stream = await _connector.ConnectAsync(context, cancellationToken).ConfigureAwait(false);
                    Volatile.Write(ref _connectingSinceMs, 0);
                    connected.TrySetResult();
                    return stream;
                },
                _connectTimeMax,
                Authorization),
            ReplyBytesMax);
        using var channel = GrpcChannel.ForAddress(_address, new GrpcChannelOptions { HttpHandler = handler, MaxReceiveMessageSize = ReplyBytesMax });
        return await new CallStream(_address, _queue.Reader, _open, connected.Task).RunAsync(channel, Cluster.Header, _disposed.Token).ConfigureAwait(false);
    }

    private void FailAll(string failure)
    {
        while (_queue.Reader.TryRead(out _))
        {
            // Calls are answered with the others, because they still have their places. Cancellations for the broken stream have no receiver any more and are
            // dropped.
        }
        _open.FailAll(failure);
    }
}
