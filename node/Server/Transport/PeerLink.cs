// Frames for one other node. Replicas add from their writer executors and never wait; one session at a time sends and receives, on the
// thread pool. What does not fit, or comes while there is no session, is dropped: the protocol repeats what matters.
using System.Diagnostics;
using Grpc.Core;
using KvCluster.Node.Runtime;
using KvCluster.V1;

namespace KvCluster.Node.Transport;

/// <summary>A bounded queue of frames and the session that empties it.</summary>
internal sealed class PeerLink
{
    /// <summary>Bytes after which a message is sent, so that a long queue does not become one message.</summary>
    private const int MessageBytes = 1 << 20;

    /// <summary>Answers to the regular beat wait for this side's own beat; longer than the default interval between beats, and little beside a lease.</summary>
    private static readonly TimeSpan AnswerPatience = TimeSpan.FromMilliseconds(110);

    /// <summary>
    /// Something is sent at least this often, so that the other side knows that this one lives: at multiples of it, so that a node's links wake it
    /// together.
    /// </summary>
    internal static readonly TimeSpan AliveInterval = TimeSpan.FromMilliseconds(200);

    /// <summary>In which the replicas of a node finish one beat.</summary>
    private static readonly TimeSpan BeatPatience = TimeSpan.FromMilliseconds(5);

    private readonly Lock _gate = new();
    private readonly FrameLanes _frames = new();
    private readonly SemaphoreSlim _urgencyRose = new(0);
    private int _urgency;
    private long _sessions;
    private long _dropped;
    private CancellationTokenSource? _session;
    private string _reason = "";
    private volatile bool _isPatienceOver;
    private long _heardTimestamp;
    private volatile bool _isUp;

    /// <summary>Whether a session runs.</summary>
    public bool IsUp => _isUp;

    /// <summary>Sessions begun so far.</summary>
    public long Sessions => Volatile.Read(ref _sessions);

    /// <summary>Bytes of frames that wait.</summary>
    public long WaitingBytes => _frames.Bytes;

    /// <summary>Frames dropped so far.</summary>
    public long Dropped => Volatile.Read(ref _dropped);

    /// <summary>Whether a session runs in which nothing has come for so long.</summary>
    public bool IsSilentFor(TimeSpan limit) => _isUp && Stopwatch.GetElapsedTime(Volatile.Read(ref _heardTimestamp)) >= limit;

    /// <summary>Queues a frame, or drops it. Any thread; never waits.</summary>
    public void Send(Frame frame)
    {
        if (_isUp && _frames.TryAdd(frame))
            Raise(FrameUrgency.Of(frame));
        else
            Interlocked.Increment(ref _dropped);
    }

    /// <summary>Sends and receives until either fails or the token fires. A session that runs already is ended: its stream is older.</summary>
    public async Task RunSessionAsync(
        IAsyncStreamReader<PeerMessage> incoming, IAsyncStreamWriter<PeerMessage> outgoing, Action<Frame> receive, CancellationToken cancellationToken)
    {
        using var session = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        lock (_gate)
        {
            // Not disposed yet: a session takes itself out, under the lock, before it is. What the cancellation runs, runs elsewhere.
            _ = _session?.CancelAsync();
            _session = session;
        }
        Interlocked.Increment(ref _sessions);
        Heard();
        _isUp = true;
        var sending = SendUntilEndAsync(outgoing, session);
        try
        {
            while (await incoming.MoveNext(session.Token).ConfigureAwait(false))
            {
                Heard();
                foreach (var frame in incoming.Current.Frames)
                    receive(frame);
            }
        }
        catch (OperationCanceledException) when (!cancellationToken.IsCancellationRequested)
        {
            // A newer stream took over; or the sender failed, and that is the reason to tell.
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

    /// <summary>Keeps why there is no session; false: that is known. For logs that say a thing once.</summary>
    public bool TryChangeReason(string reason)
    {
        lock (_gate)
        {
            var isNew = _reason != reason;
            _reason = reason;
            return isNew;
        }
    }

    private void Heard() => Volatile.Write(ref _heardTimestamp, Stopwatch.GetTimestamp());

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

    // A failed write ends the session's stream, which the receiving side sees too. So does anything else that ends the sender: a side that only listens
    // would look alive for ever.
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
        // One that is set again and again: waits that time out by themselves cost an exception each, ten times a second on an idle node.
        using var patience = new Timer(static state => ((PeerLink)state!).EndPatience(), this, Timeout.InfiniteTimeSpan, Timeout.InfiniteTimeSpan);
        while (true)
        {
            await WaitUntilDueAsync(patience, cancellationToken).ConfigureAwait(false);
            // Before the queue is emptied: who adds from here on raises it again.
            Interlocked.Exchange(ref _urgency, (int)Urgency.None);
            // Signals of what was seen without waiting for them.
            while (_urgencyRose.Wait(0))
            {
            }
            // An empty one, too, which says that this side lives.
            do
            {
                await outgoing.WriteAsync(_frames.TryTake(MessageBytes, out var message) ? message : new PeerMessage()).ConfigureAwait(false);
            }
            while (_frames.Count > 0);
        }
    }

    // Ends when something urgent waits, or what waits has waited as long as it may.
    private async Task WaitUntilDueAsync(Timer patience, CancellationToken cancellationToken)
    {
        for (var urgency = Volatile.Read(ref _urgency); urgency < (int)Urgency.Now; urgency = Volatile.Read(ref _urgency))
        {
            _isPatienceOver = false;
            patience.Change(PatienceOf((Urgency)urgency), Timeout.InfiniteTimeSpan);
            await _urgencyRose.WaitAsync(cancellationToken).ConfigureAwait(false);
            // Also by what was set for an earlier wait and fires late: then it goes a little early.
            if (_isPatienceOver)
                return;
        }
    }

    private static TimeSpan PatienceOf(Urgency urgency) => urgency switch
    {
        Urgency.Answer => AnswerPatience,
        Urgency.Beat => BeatPatience,
        _ => CommonMoments.Until(AliveInterval),
    };

    private void EndPatience()
    {
        _isPatienceOver = true;
        _urgencyRose.Release();
    }
}
