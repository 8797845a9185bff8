using KvCluster.Internal.V1;

namespace KvCluster.Node.Transport;

/// <summary>How long a frame may wait on this side to be sent together with others. A frame of greater urgency does not wait for those of lesser.</summary>
internal enum Urgency
{
    /// <summary>
    /// No frame waits, or only heartbeats of quiescent leaders and answers that grant no lease. They are sent with the next message, of which there are four a
    /// second.
    /// </summary>
    None,

    /// <summary>An answer that grants a lease, to a heartbeat that was not awaited. It is sent with this side's next heartbeats.</summary>
    Answer,

    /// <summary>A regular heartbeat. The node's other shards send theirs at the same moment.</summary>
    Beat,

    /// <summary>Any other frame; sent at once.</summary>
    Now,
}

/// <summary>Determines the urgency of a frame.</summary>
internal static class FrameUrgency
{
    /// <summary>A leader that is not quiescent, but one of many on its node, rests for less.</summary>
    private const ulong QuiescentUsMin = 1_000_000;

    public static Urgency Of(Frame frame) => frame.PayloadCase switch
    {
        // Followers wait for three of the times after which a quiescent leader sends the next one, which are seconds.
        Frame.PayloadOneofCase.Heartbeat when !frame.Heartbeat.Awaited => frame.Heartbeat.RestUs >= QuiescentUsMin ? Urgency.None : Urgency.Beat,
        // No lease ends for want of an answer that grants none.
        Frame.PayloadOneofCase.HeartbeatAck when !frame.HeartbeatAck.Awaited => frame.HeartbeatAck.Granted ? Urgency.Answer : Urgency.None,
        _ => Urgency.Now,
    };
}
