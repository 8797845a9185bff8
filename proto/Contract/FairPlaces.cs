namespace KvCluster;

/// <summary>
/// A bounded number of places for open calls, shared by shards or by streams. Three quarters of the places are shared. Of these, one shard's changes may hold
/// at most as many as remain free, and so may its reads. A stuck shard therefore leaves half of them to others. The last quarter is reserved for those that
/// hold few places. It is divided into small shares, 64 for 4,096 places, and that many shards may be stuck before others have to wait. The bytes of the
/// requests are shared in the same way, except that a share without any always gets one request. Used by both ends of an exchange, and by a node for all its
/// exchanges. Not thread-safe: callers hold their own lock.
/// </summary>
/// <param name="capacity">The number of places.</param>
/// <param name="requestBytesMax">The bytes of the requests that hold places.</param>
internal sealed class FairPlaces(int capacity, long requestBytesMax = FairPlaces.RequestBytesMax)
{
    /// <summary>
    /// For one stream. A shard's calls of one kind may use half of it when they are alone, which is two of the largest values. Less than a process has for
    /// large requests.
    /// </summary>
    public const long RequestBytesMax = 32 << 20;

    /// <summary>The number of shares without a call that are kept, so that the next call to a quiet shard allocates none.</summary>
    private const int SharesKept = 1_024;

    private readonly int _reserve = capacity / 4;
    private readonly int _few = Math.Max(1, capacity / 256);
    private readonly long _fewBytes = requestBytesMax / 64;
    private readonly Dictionary<(ShardId Shard, bool IsChange), Share> _shares = [];

    /// <summary>Number of places taken.</summary>
    public int Taken { get; private set; }

    /// <summary>Bytes of the requests that hold places.</summary>
    public long Bytes { get; private set; }

    private int Free => capacity - Taken;

    /// <summary>Takes a place, unless the shard's calls of this kind have used their share.</summary>
    /// <param name="shard">By the caller's map; 0 if it does not say.</param>
    /// <param name="isChange">Changes and reads of a shard do not take places from one another.</param>
    /// <param name="bytes">The size of the call's request.</param>
    /// <param name="share">To be passed to <see cref="Return"/>; set whether or not there was a place.</param>
    public bool TryTake(ShardId shard, bool isChange, int bytes, out Share share)
    {
        share = ShareOf(shard, isChange);
        return TryTake(share, bytes);
    }

    /// <summary>Takes a place for a share that is known already.</summary>
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

    /// <summary>Returns a place.</summary>
    public void Return(Share share, int bytes)
    {
        share.Count--;
        share.Bytes -= bytes;
        Taken--;
        Bytes -= bytes;
    }

    private bool MayTake(Share share) => share.Count < Free - _reserve || (share.Count < _few && Free > 0);

    private bool MayHold(Share share, int bytes) => share.Bytes == 0 || share.Bytes + bytes <= Math.Max(requestBytesMax - Bytes, _fewBytes);

    private Share ShareOf(ShardId shard, bool isChange)
    {
        if (_shares.TryGetValue((shard, isChange), out var share))
            return share;
        // The caller chooses the ids. Without this, a caller that makes them up could let the table grow without bound.
        if (_shares.Count >= SharesKept)
        {
            foreach (var (key, _) in _shares.Where(static entry => entry.Value.Count == 0 && entry.Value.Waiters == 0).ToList())
                _shares.Remove(key);
        }
        return _shares[(shard, isChange)] = new Share();
    }

    /// <summary>What the calls of one kind to a shard hold.</summary>
    internal sealed class Share
    {
        /// <summary>Number of places held.</summary>
        public int Count { get; set; }

        /// <summary>Bytes of the requests that hold them.</summary>
        public long Bytes { get; set; }

        /// <summary>Number of calls that wait for a place, if the owner of the places lets calls wait.</summary>
        public int Waiters { get; set; }
    }
}
