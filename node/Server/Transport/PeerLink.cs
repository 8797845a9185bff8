// The frames for one other node. Replicas add from their writer executors and never wait. One session at a time sends and receives, on the
// thread pool. Frames that do not fit, or come while there is no session, are dropped; the protocol repeats what matters. What cannot be parsed ends the
// session (PeerService), and what is in a frame is checked by ReplicaCore.
using System.Diagnostics;
using Grpc.Core;
using KvCluster.Internal.V1;

namespace KvCluster.Node.Transport;

/// <summary>A bounded queue of frames and the session that sends them.</summary>
internal sealed class PeerLink
{
    /// <summary>Bytes after which a message is sent, so that a long queue does not become one message.</summary>
    private const int MessageBytes = 1 << 20;

    /// <summary>
    /// What may wait for <see cref="SendLeft"/>, with all else that waits: enough that the message itself costs little beside its frames, and not more, because
    /// the other side begins to work on them when it comes.
    /// </summary>
    internal const int LeftFramesMax = 64;
    internal const long LeftBytesMax = 32 << 10;

    /// <summary>Frames of a message that are passed on before the replicas begin with them.</summary>
    private const int FramesTogether = 64;

    /// <summary>
    /// How long answers to regular heartbeats wait for this side's own heartbeats. Longer than the default heartbeat interval, and short compared to a
    /// lease.
    /// </summary>
    private static readonly TimeSpan AnswerPatience = TimeSpan.FromMilliseconds(110);

    /// <summary>
    /// Something is sent at least this often, so that the other side knows that this one is alive. Whoever misses two in a row by more than 100 ms finds this
    /// side silent. Divides the moments at which replicas of an idle node are due.
    /// </summary>
    internal static readonly TimeSpan AliveInterval = TimeSpan.FromMilliseconds(250);

    /// <summary>
    /// After so many calls of <see cref="SayAlive"/> without anything from the other side, four seconds, the session is of no use. Time in which this process
    /// did not run does not count, because messages may have come meanwhile. A message that takes longer than that to arrive counts with each part of it.
    /// </summary>
    internal const int UnheardMax = 16;

    /// <summary>Time in which a node's replicas finish sending one round of heartbeats.</summary>
    private static readonly TimeSpan BeatPatience = TimeSpan.FromMilliseconds(5);

    private readonly Lock _gate = new();
    private readonly FrameQueue _frames = new();
    private readonly SemaphoreSlim _urgencyRose = new(0);
    private int _urgency;
    private long _sessions;
    private long _dropped;
    private CancellationTokenSource? _session;
    private string _reason = "";
    private int _hasLeft;
    private volatile bool _isPatienceOver;
    private long _heardTimestamp;
    private int _unheard;
    private volatile bool _isUp;

    /// <summary>Whether there is a session.</summary>
    public bool IsUp => _isUp;

    /// <summary>Number of sessions begun so far.</summary>
    public long Sessions => Volatile.Read(ref _sessions);

    /// <summary>Bytes of the waiting frames.</summary>
    public long WaitingBytes => _frames.Bytes;

    /// <summary>Number of frames dropped so far.</summary>
    public long Dropped => Volatile.Read(ref _dropped);

    /// <summary>Whether there is a session in which nothing was received for this long.</summary>
    public bool IsSilentFor(TimeSpan limit) => _isUp && Stopwatch.GetElapsedTime(Volatile.Read(ref _heardTimestamp)) >= limit;

    /// <summary>Whether nothing was received in <see cref="UnheardMax"/> calls of <see cref="SayAlive"/>, not even a part of a message.</summary>
    public bool IsUnheard => Volatile.Read(ref _unheard) >= UnheardMax;

    /// <summary>Queues a frame, or drops it. Any thread; never waits.</summary>
    public void Send(Frame frame)
    {
        if (_isUp && _frames.TryAdd(frame))
            Raise(FrameUrgency.Of(frame));
        else
            Interlocked.Increment(ref _dropped);
    }

    /// <summary>Queues a frame that may wait for <see cref="SendLeft"/>, or drops it. Any thread; never waits.</summary>
    public void Leave(Frame frame)
    {
        if (!_isUp || !_frames.TryAdd(frame))
            Interlocked.Increment(ref _dropped);
        else if (_frames.Count >= LeftFramesMax || _frames.Bytes >= LeftBytesMax)
            Raise(Urgency.Now);
        else
            Volatile.Write(ref _hasLeft, 1);
    }

    /// <summary>Sends what was left before this call, unless it was sent with other frames. Any thread; never waits.</summary>
    public void SendLeft()
    {
        if (Volatile.Read(ref _hasLeft) == 1 && Interlocked.Exchange(ref _hasLeft, 0) == 1 && _frames.Count > 0)
            Raise(Urgency.Now);
    }

    /// <summary>
    /// Sends what waits, or an empty message, so that the other side knows that this one is alive. Called each <see cref="AliveInterval"/>, for all links
    /// together. A message that is just being sent, or will be within <see cref="AnswerPatience"/>, is enough. Any thread; never waits.
    /// </summary>
    public void SayAlive()
    {
        if (_unheard < UnheardMax)
            Interlocked.Increment(ref _unheard);
        if (_isUp && Volatile.Read(ref _urgency) == (int)Urgency.None)
            EndPatience();
    }

    /// <summary>A part of a message was received. A large record may take longer over a slow network than a session may be unheard. Any thread.</summary>
    public void HeardPart() => Volatile.Write(ref _unheard, 0);

    /// <summary>Ends the session, if there is one that is unheard. One that begins at this moment is not. Any thread; never waits.</summary>
    public void EndIfUnheard()
    {
        lock (_gate)
        {
            if (IsUnheard)
                _ = _session?.CancelAsync();
        }
    }

    /// <summary>Sends and receives until either fails or the token fires. An existing session is ended, because its stream is older.</summary>
    /// <param name="incoming">Messages from the other node.</param>
    /// <param name="outgoing">Messages to the other node.</param>
    /// <param name="receive">Called with each frame.</param>
    /// <param name="received">Called after the frames of a message, and after some of those of a long one.</param>
    /// <param name="cancellationToken">Ends the session.</param>
    public async Task RunSessionAsync(
        IAsyncStreamReader<PeerMessage> incoming, IAsyncStreamWriter<PeerMessage> outgoing, Action<Frame> receive, Action received,
        CancellationToken cancellationToken)
    {
        using var session = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        lock (_gate)
        {
            // Not disposed yet, because a session removes itself under the lock first. Callbacks of the cancellation run on another thread.
            _ = _session?.CancelAsync();
            _session = session;
            // Nothing was heard while there was no session.
            Heard();
        }
        Interlocked.Increment(ref _sessions);
        _isUp = true;
        var sending = SendUntilEndAsync(outgoing, session);
        try
        {
            while (await incoming.MoveNext(session.Token).ConfigureAwait(false))
            {
                Heard();
                PassOn(incoming.Current.Frames, receive, received);
            }
        }
        catch (OperationCanceledException) when (!cancellationToken.IsCancellationRequested)
        {
            // A newer stream took over, or the sender failed, which then is the reason to report.
            await sending.ConfigureAwait(false);
            throw;
        }
        finally
        {
            lock (_gate)
            {
                if (_session == session)
                {
                    _session = null;
                    _isUp = false;
                }
            }
            await session.CancelAsync().ConfigureAwait(false);
            await sending.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            if (!_isUp)
                _frames.Clear();
        }
    }

    /// <summary>Stores why there is no session. False if it is the same reason as before; used to log each reason once.</summary>
    public bool TryChangeReason(string reason)
    {
        lock (_gate)
        {
            var isNew = _reason != reason;
            _reason = reason;
            return isNew;
        }
    }

    // Also after a failure, those who have frames begin.
    private static void PassOn(IList<Frame> frames, Action<Frame> receive, Action received)
    {
        try
        {
            for (var index = 0; index < frames.Count; index++)
            {
                receive(frames[index]);
                if (index % FramesTogether == FramesTogether - 1)
                    received();
            }
        }
        finally
        {
            received();
        }
    }

    private void Heard()
    {
        Volatile.Write(ref _heardTimestamp, Stopwatch.GetTimestamp());
        Volatile.Write(ref _unheard, 0);
    }

    private void Raise(Urgency urgency)
    {
        for (var known = Volatile.Read(ref _urgency); known < (int)urgency; known = Volatile.Read(ref _urgency))
        {
            if (Interlocked.CompareExchange(ref _urgency, (int)urgency, known) != known)
                continue;
            _urgencyRose.Release();
            return;
        }
    }

    // A failed write ends the session's stream, which the receiving side sees too. So does anything else that ends the sender, because a side that only
    // receives would look alive for ever.
    private async Task SendUntilEndAsync(IAsyncStreamWriter<PeerMessage> outgoing, CancellationTokenSource session)
    {
        try
        {
            await SendAllAsync(outgoing, session.Token).ConfigureAwait(false);
        }
        finally
        {
            await session.CancelAsync().ConfigureAwait(false);
        }
    }

    private async Task SendAllAsync(IAsyncStreamWriter<PeerMessage> outgoing, CancellationToken cancellationToken)
    {
        // One timer that is set again and again. Waits with a timeout would throw an exception each. It is not set while nothing waits that may not wait for
        // the next SayAlive, which is so on an idle node.
        using var patience = new Timer(static state => ((PeerLink)state!).EndPatience(), this, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
        while (true)
        {
            await WaitUntilDueAsync(patience, cancellationToken).ConfigureAwait(false);
            // Reset before the queue is emptied, so that whoever adds after this raises it again.
            Interlocked.Exchange(ref _urgency, (int)Urgency.None);
            // Consumes signals whose urgency was already seen.
            while (_urgencyRose.Wait(0))
            {
            }
            // Even an empty message, with which this side says that it is alive.
            do
            {
                await outgoing.WriteAsync(_frames.TryTake(MessageBytes, out var message) ? message : new PeerMessage()).ConfigureAwait(false);
            }
            while (_frames.Count > 0);
        }
    }

    // Returns when something urgent waits, when what waits has waited as long as it may, or when this side has to say that it is alive.
    private async Task WaitUntilDueAsync(Timer patience, CancellationToken cancellationToken)
    {
        for (var urgency = Volatile.Read(ref _urgency); urgency < (int)Urgency.Now; urgency = Volatile.Read(ref _urgency))
        {
            _isPatienceOver = false;
            patience.Change(PatienceOf((Urgency)urgency), Timeout.InfiniteTimeSpan);
            await _urgencyRose.WaitAsync(cancellationToken).ConfigureAwait(false);
            // A timer set for an earlier wait may fire late and end this one. The message is then sent a little early.
            if (_isPatienceOver)
                return;
        }
    }

    private static TimeSpan PatienceOf(Urgency urgency) => urgency switch
    {
        Urgency.Answer => AnswerPatience,
        Urgency.Beat => BeatPatience,
        _ => Timeout.InfiniteTimeSpan,
    };

    private void EndPatience()
    {
        _isPatienceOver = true;
        _urgencyRose.Release();
    }
}
