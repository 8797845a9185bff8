namespace Grpc.AspNetCore.Server.Calls;

/// <summary>
/// What the messages that callers are slow with may hold in a server's buffers. A service of a host that wants bounds; without it there are none.
/// </summary>
internal sealed class MessageMemory(long arrivingBytesMax, long leavingBytesMax)
{
    /// <summary>Requests of which a part has come.</summary>
    public HeldMessages Arriving { get; } = new(arrivingBytesMax);

    /// <summary>Unary responses that are not read.</summary>
    public HeldMessages Leaving { get; } = new(leavingBytesMax);
}
