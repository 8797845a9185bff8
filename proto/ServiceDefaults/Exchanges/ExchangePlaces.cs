// The open calls of all exchanges of a process. Created once by the node's or router's service; any thread.
using KvCluster.ServiceDefaults.Memory;

namespace KvCluster.ServiceDefaults.Exchanges;

/// <summary>
/// Limits the number of open calls and the bytes of their requests, in two ways: by stream, so that no caller keeps the others out, and by shard and kind over
/// all streams, so that a stuck shard does not either, no matter on how many streams its calls arrive.
/// </summary>
/// <param name="requests">The process's budget for requests. The part that large requests may take is shared.</param>
/// <param name="callsMax">See <see cref="CallsMax"/>.</param>
internal sealed class ExchangePlaces(ByteBudget requests, int callsMax = ExchangePlaces.CallsMax)
{
    /// <summary>
    /// As many as eight streams may have, and twice a shard's queue. A waiting call takes half a kilobyte to one, so all of them take about 32 MiB.
    /// </summary>
    public const int CallsMax = 32_768;

    private readonly Lock _gate = new();
    private readonly FairPlaces _byStream = new(callsMax, requests.LargeBytesMax);
    private readonly FairPlaces _byShard = new(callsMax, requests.LargeBytesMax);

    /// <summary>Number of places taken.</summary>
    public int Taken
    {
        get
        {
            lock (_gate)
                return _byStream.Taken;
        }
    }

    /// <summary>Takes a place.</summary>
    /// <param name="stream">The share of the stream; a new one for each stream.</param>
    /// <param name="shard">By the caller's map; 0 if it does not say.</param>
    /// <param name="isChange">Changes and reads of a shard do not take places from one another.</param>
    /// <param name="bytes">The size of the call's request.</param>
    /// <param name="share">To be passed to <see cref="Return"/>.</param>
    public bool TryTake(FairPlaces.Share stream, ShardId shard, bool isChange, int bytes, out FairPlaces.Share share)
    {
        lock (_gate)
        {
            if (!_byShard.TryTake(shard, isChange, bytes, out share))
                return false;
            if (_byStream.TryTake(stream, bytes))
                return true;
            _byShard.Return(share, bytes);
            return false;
        }
    }

    /// <summary>Returns a place.</summary>
    public void Return(FairPlaces.Share stream, FairPlaces.Share share, int bytes)
    {
        lock (_gate)
        {
            _byStream.Return(stream, bytes);
            _byShard.Return(share, bytes);
        }
    }
}
