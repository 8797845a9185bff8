namespace Grpc.AspNetCore.Server.Calls;

/// <summary>
/// Limits what messages of slow callers may hold in a server's buffers. Added to the services of a host that wants limits; without it there are none.
/// </summary>
internal sealed class MessageMemory(long arrivingBytesMax, long leavingBytesMax)
{
    /// <summary>Requests that have partly arrived.</summary>
    public HeldMessages Arriving { get; } = new(arrivingBytesMax);

    /// <summary>Unary responses that have not been read.</summary>
    public HeldMessages Leaving { get; } = new(leavingBytesMax);
}
