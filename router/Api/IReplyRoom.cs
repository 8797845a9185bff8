namespace KvCluster.Router.Api;

/// <summary>What a caller has for the response of one call. Asked for large responses only, whose size is known before they are brought. Implemented for unary calls and for those of an exchange.</summary>
internal interface IReplyRoom
{
    /// <summary>Waits until the caller's other responses leave room, and keeps it for the call, in the place of what was kept before. False: the deadline, of <see cref="Environment.TickCount64"/>, passed first.</summary>
    ValueTask<bool> HoldAsync(int bytes, long deadlineMs, CancellationToken cancellationToken);

    /// <summary>Gives back what is kept: the response does not come for now.</summary>
    void Release();

    /// <summary>Whether there is room in the process now. False: the read is refused.</summary>
    bool MayRespond(int bytes);
}
