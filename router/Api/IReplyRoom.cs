namespace KvCluster.Router.Api;

/// <summary>
/// The room that a caller has for the response of one call. Used for large responses only, whose size is known before they are fetched. Implemented for unary
/// calls and for those of an exchange.
/// </summary>
internal interface IReplyRoom
{
    /// <summary>
    /// Waits until the caller's other responses leave room, and keeps it for the call instead of what was kept before. Returns false if the deadline, of
    /// <see cref="Environment.TickCount64"/>, passed first.
    /// </summary>
    ValueTask<bool> HoldAsync(int bytes, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Releases the room, because the response does not come for now.</summary>
    void Release();

    /// <summary>Whether the process has room now. If not, the read is refused.</summary>
    bool MayRespond(int bytes);
}
