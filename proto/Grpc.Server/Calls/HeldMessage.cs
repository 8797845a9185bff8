namespace Grpc.AspNetCore.Server.Calls;

/// <summary>
/// The message that a call waits for. Everything except <see cref="IsHeld"/> belongs to <see cref="HeldMessages"/> and is used under its lock.
/// </summary>
/// <param name="end">Ends the call.</param>
internal sealed class HeldMessage(Action end)
{
    /// <summary>Number of bytes held.</summary>
    public long Bytes { get; set; }

    /// <summary>Whether it is in the list of messages that are waited for.</summary>
    public bool IsListed { get; set; }

    /// <summary><see cref="Environment.TickCount64"/> at which it began to hold bytes.</summary>
    public long SinceMs { get; set; }

    public HeldMessage? Older { get; set; }

    public HeldMessage? Newer { get; set; }

    /// <summary>Whether its call has made it hold bytes since it was last released. Used by the call's own thread.</summary>
    public bool IsHeld { get; set; }

    public void End() => end();
}
