// How far a call on a connection has come. The stream's sender and receiver, the deadline sweep, the caller's cancellation and the end of the stream race to
// move it on, from any thread and without a lock.
namespace KvCluster.Client.Transport;

/// <summary>
/// The stages of a call. It waits, is sent and gets a reply, or ends without one before or after it was sent. Each transition is one atomic step, and of those
/// that race exactly one succeeds. Only the one that succeeded acts on it: it puts the call into a message, or gives the caller the answer.
/// </summary>
internal struct CallProgress
{
    private int _stage;

    private enum Stage
    {
        /// <summary>In the stream's queue, or on its way there.</summary>
        Waiting,

        /// <summary>Its entry has left the queue. A change without a reply has an unknown outcome from here on.</summary>
        Sent,

        /// <summary>The node has replied. Nothing of the connection refers to the call any more.</summary>
        Replied,

        /// <summary>Answered without a reply. Its entry may still be in the queue, or a message with it is still being written.</summary>
        Ended,
    }

    /// <summary>Whether nobody has answered it yet.</summary>
    public readonly bool IsOpen => Volatile.Read(in _stage) is (int)Stage.Waiting or (int)Stage.Sent;

    /// <summary>The sender puts it into a message. Returns false if it has ended, and then it must not be sent.</summary>
    public bool TrySend() => TryMove(Stage.Waiting, Stage.Sent);

    /// <summary>A reply has arrived. Returns false if the call has ended or was not sent, and then the reply is not for it.</summary>
    public bool TryReply() => TryMove(Stage.Sent, Stage.Replied);

    /// <summary>It ends without having been sent. Returns false if it was sent or has ended before.</summary>
    public bool TryEndUnsent() => TryMove(Stage.Waiting, Stage.Ended);

    /// <summary>It ends without a reply. Returns false if it has been answered before.</summary>
    /// <param name="wasSent">Whether it may have reached the node.</param>
    public bool TryEnd(out bool wasSent)
    {
        // A call never goes back, so it is in neither of the two stages only if it has been answered.
        wasSent = !TryEndUnsent();
        return !wasSent || TryMove(Stage.Sent, Stage.Ended);
    }

    /// <summary>Makes it a new call that waits.</summary>
    /// <exception cref="InvariantException">The call got no reply, so something may still refer to it.</exception>
    public void Restart() => Invariant.Check(TryMove(Stage.Replied, Stage.Waiting), "a call without a reply was to be used again");

    private bool TryMove(Stage from, Stage to) => Interlocked.CompareExchange(ref _stage, (int)to, (int)from) == (int)from;
}
