using KvCluster.V1;

namespace KvCluster.Node.Transport;

/// <summary>How long a frame may wait on this side for others to travel with; a greater one does not wait for lesser ones.</summary>
internal enum Urgency
{
    /// <summary>Nothing waits.</summary>
    None,

    /// <summary>An answer to a heartbeat that nobody awaits: travels with the next heartbeats of this side.</summary>
    Answer,

    /// <summary>A heartbeat of the regular beat: its node's other shards beat at the same moment.</summary>
    Beat,

    /// <summary>Everything else goes at once.</summary>
    Now,
}

/// <summary>Tells the urgency of a frame.</summary>
internal static class FrameUrgency
{
    public static Urgency Of(Frame frame) => frame.PayloadCase switch
    {
        Frame.PayloadOneofCase.Heartbeat when !frame.Heartbeat.Awaited => Urgency.Beat,
        Frame.PayloadOneofCase.HeartbeatAck when !frame.HeartbeatAck.Awaited => Urgency.Answer,
        _ => Urgency.Now,
    };
}
