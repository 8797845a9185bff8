using KvCluster.Internal.V1;

namespace KvCluster.Node.Transport;

/// <summary>How long a frame may wait on this side to be sent together with others. A frame of greater urgency does not wait for those of lesser.</summary>
internal enum Urgency
{
    /// <summary>No frame waits.</summary>
    None,

    /// <summary>An answer to a heartbeat that was not awaited. It is sent with this side's next heartbeats.</summary>
    Answer,

    /// <summary>A regular heartbeat. The node's other shards send theirs at the same moment.</summary>
    Beat,

    /// <summary>Any other frame; sent at once.</summary>
    Now,
}

/// <summary>Determines the urgency of a frame.</summary>
internal static class FrameUrgency
{
    public static Urgency Of(Frame frame) => frame.PayloadCase switch
    {
        Frame.PayloadOneofCase.Heartbeat when !frame.Heartbeat.Awaited => Urgency.Beat,
        Frame.PayloadOneofCase.HeartbeatAck when !frame.HeartbeatAck.Awaited => Urgency.Answer,
        _ => Urgency.Now,
    };
}
