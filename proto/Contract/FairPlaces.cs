namespace KvCluster;

/// <summary>
/// A bounded number of places for calls without an answer, shared by shards: the changes of a shard, and its reads, take no more of three quarters of them than
/// are left free, so that one shard that is stuck leaves half. The last quarter is for whoever holds few places: so many shards may be stuck as it has such shares,
/// 64 of 4,096 places, before others have to wait. The bytes of their requests are shared in the same way, but that a share without any always gets one request.
/// Used by the ends of an exchange, and by a node for all its exchanges. Not thread-safe: callers hold their own lock.
/// </summary>
/// <param name="capacity">Places.</param>
/// <param name="requestBytesMax">Bytes of requests that hold places.</param>
internal sealed class FairPlaces(int capacity, long requestBytesMax = FairPlaces.RequestBytesMax)
{
    /// <summary>Of one stream: a shard's calls of one kind have half of it by themselves, two of the largest values. Less than a process has for large requests.</summary>
    public const long RequestBytesMax = 32 << 20;

    /// <summary>Shares that are kept without a call, so that a quiet shard's next call allocates none.</summary>
    private const int SharesKept = 1_024;

    private readonly int _reserve = capacity / 4;
    private readonly int _few = Math.Max(1, capacity / 256);
    private readonly long _fewBytes = requestBytesMax / 64;
    private readonly Dictionary<(uint Shard, bool IsChange), Share> _shares = [];

    /// <summary>Places taken.</summary>
    public int Taken { get; private set; }

    /// <summary>Bytes of the requests that hold places.</summary>
    public long Bytes { get; private set; }

    private int Free => capacity - Taken;

    /// <summary>Takes a place, if the shard's calls of this kind have not more than their share.</summary>
    /// <param name="shard">As the caller's map has it; 0 where it says none.</param>
    /// <param name="isChange">Changes and reads of a shard do not take places from one another.</param>
    /// <param name="bytes">Of the call's request.</param>
    /// <param name="share">For <see cref="Return"/>, whether or not there was a place.</param>
    public bool TryTake(uint shard, bool isChange, int bytes, out Share share)
    {
        share = ShareOf(shard, isChange);
        return TryTake(share, bytes);
    }

    /// <summary>The same of a share that is known.</summary>
    public bool TryTake(Share share, int bytes)
    {
        if (!MayTake(share) || !MayHold(share, bytes))
            return false;
        share.Count++;
        share.Bytes += bytes;
        Taken++;
        Bytes += bytes;
        return true;
    }

    /// <summary>Gives a place back.</summary>
    public void Return(Share share, int bytes)
    {
        share.Count--;
        share.Bytes -= bytes;
        Taken--;
        Bytes -= bytes;
    }

    private bool MayTake(Share share) => share.Count < Free - _reserve || (share.Count < _few && Free > 0);

    private bool MayHold(Share share, int bytes) => share.Bytes == 0 || share.Bytes + bytes <= Math.Max(requestBytesMax - Bytes, _fewBytes);

    private Share ShareOf(uint shard, bool isChange)
    {
        if (_shares.TryGetValue((shard, isChange), out var share))
            return share;
        // Ids are the caller's word: without this, one that makes them up would have the table grow for ever.
        if (_shares.Count >= SharesKept)
        {
            foreach (var (key, _) in _shares.Where(static entry => entry.Value.Count == 0 && entry.Value.Waiters == 0).ToList())
                _shares.Remove(key);
        }
        return _shares[(shard, isChange)] = new Share();
    }

    /// <summary>What the calls of a shard of one kind hold.</summary>
    internal sealed class Share
    {
        /// <summary>Places held.</summary>
        public int Count { get; set; }

        /// <summary>Bytes of the requests that hold them.</summary>
        public long Bytes { get; set; }

        /// <summary>Calls that wait for one, where the owner of the places has such.</summary>
        public int Waiters { get; set; }
    }
}
