using System.Collections.Concurrent;
using KvCluster.Internal.V1;
using KvCluster.Node.Shards.Context;
using KvCluster.Storage.Threads;
using Event = KvCluster.Replication.Protocol.Event;

namespace KvCluster.Node.Shards.Loop;

/// <summary>
/// What other threads leave for a replica: events for its core, and visits, which run between two events. Whatever is left here wakes the replica, and its
/// turn is posted once until it begins. Filled on any thread, emptied on the shard's writer executor.
/// </summary>
/// <param name="writer">The shard's writer executor.</param>
/// <param name="turn">The replica's turn, <c>EventLoop.TakeTurn</c>, which calls <see cref="BeginTurn"/> first.</param>
internal sealed class ReplicaMailbox(ISerialExecutor writer, IWorkItem turn)
{
    // Several windows of a leader's bodies and snapshot. Beyond it frames are dropped, as a network may do, and sent again.
    private const long FrameBytesWaitingMax = 32 << 20;

    private readonly ConcurrentQueue<Event> _events = new();
    private readonly ConcurrentQueue<Visit> _visits = new();
    private long _frameBytesWaiting;
    private int _isPosted;

    /// <summary>Whether events wait.</summary>
    public bool HasEvents => !_events.IsEmpty;

    /// <summary>Bytes of the frames that wait.</summary>
    public long WaitingBytes => Interlocked.Read(ref _frameBytesWaiting);

    /// <summary>Leaves an event. Any thread.</summary>
    public void Add(Event happened)
    {
        _events.Enqueue(happened);
        Wake();
    }

    /// <summary>
    /// Leaves a frame, or drops it if too much waits. Whoever leaves the frames of a message wakes the writer executor after them. Any thread.
    /// </summary>
    public void Receive(Frame frame)
    {
        var bytes = FrameBytes.Of(frame);
        if (Interlocked.Add(ref _frameBytesWaiting, bytes) > FrameBytesWaitingMax)
        {
            Interlocked.Add(ref _frameBytesWaiting, -bytes);
            return;
        }
        _events.Enqueue(new Event.FrameReceived(frame));
        if (Interlocked.Exchange(ref _isPosted, 1) == 0)
            writer.PostQuietly(turn);
    }

    /// <summary>Nothing arrives from a node any more, or the stream from it ended. Any thread.</summary>
    public void NodeSilent(NodeId node) => Add(new Event.NodeSilent(node));

    /// <summary>The coordinator's watch showed the shard's record. Any thread.</summary>
    public void RecordChanged(ShardRecord record, long revision) => Add(new Event.ShardRecordRead(0, record, revision));

    /// <summary>Runs an action between two events. False if the replica had failed or stopped before. Any thread.</summary>
    public Task<bool> VisitAsync(Action action)
    {
        var done = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
        Leave(action, done);
        return done.Task;
    }

    /// <summary>The same without waiting. Any thread.</summary>
    /// <param name="action">Runs on the writer executor, unless the replica has failed or stopped.</param>
    /// <param name="done">Receives whether it ran.</param>
    public void Leave(Action action, TaskCompletionSource<bool>? done = null)
    {
        Action<bool>? ended = done is null ? null : ran => done.TrySetResult(ran);
        Leave(new Visit(action, ended));
    }

    /// <summary>
    /// The same, for those who ask many replicas at once: the writer executor calls them, instead of waking a thread of the pool for each. Any thread.
    /// </summary>
    /// <param name="action">Runs on the writer executor, unless the replica has failed or stopped.</param>
    /// <param name="ended">Receives whether it ran. Called on the writer executor, so it must be short and must not run anybody's continuation.</param>
    public void LeaveTold(Action action, Action<bool> ended) => Leave(new Visit(action, ended));

    /// <summary>Posts the replica's turn unless it is already posted. Any thread.</summary>
    public void Wake()
    {
        if (Interlocked.Exchange(ref _isPosted, 1) == 0)
            writer.Post(turn);
    }

    /// <summary>A full fence: whoever leaves something after this posts the next turn.</summary>
    public void BeginTurn() => Interlocked.Exchange(ref _isPosted, 0);

    /// <summary>Takes the oldest event.</summary>
    public bool TryTake(out Event happened)
    {
        if (!_events.TryDequeue(out happened!))
            return false;
        if (happened is Event.FrameReceived received)
            Interlocked.Add(ref _frameBytesWaiting, -FrameBytes.Of(received.Frame));
        return true;
    }

    /// <summary>Takes the oldest visit, which must then be run.</summary>
    public bool TryTakeVisit(out Visit visit) => _visits.TryDequeue(out visit);

    private void Leave(in Visit visit)
    {
        _visits.Enqueue(visit);
        Wake();
    }

    /// <summary>An action between two events, and who is told whether it ran.</summary>
    internal readonly record struct Visit(Action Action, Action<bool>? Ended)
    {
        /// <summary>Runs the action if the replica works. An exception of it ends the replica.</summary>
        public void Run(bool works)
        {
            try
            {
                if (works)
                    Action();
            }
            catch
            {
                // The caller that waits for the visit must be answered.
                Ended?.Invoke(false);
                throw;
            }
            Ended?.Invoke(works);
        }
    }
}
