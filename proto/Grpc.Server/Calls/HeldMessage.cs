namespace Grpc.AspNetCore.Server.Calls;

/// <summary>The message that one call waits for; all of it but <see cref="IsHeld"/> belongs to <see cref="HeldMessages"/>, under its lock.</summary>
/// <param name="end">Breaks the call off.</param>
internal sealed class HeldMessage(Action end)
{
    /// <summary>Bytes held.</summary>
    public long Bytes { get; set; }

    /// <summary>Whether it stands in the list of those that are waited for.</summary>
    public bool IsListed { get; set; }

    /// <summary><see cref="Environment.TickCount64"/> at which it began to hold some.</summary>
    public long SinceMs { get; set; }

    public HeldMessage? Older { get; set; }

    public HeldMessage? Newer { get; set; }

    /// <summary>Whether its call has had it hold bytes since it was last released. Of the call's own thread.</summary>
    public bool IsHeld { get; set; }

    public void End() => end();
}
