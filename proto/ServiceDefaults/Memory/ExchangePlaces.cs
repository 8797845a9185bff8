// The calls without an answer of all exchanges of a process. Made once by the node's or router's service; any thread.
namespace KvCluster.ServiceDefaults.Memory;

/// <summary>
/// Bounds them by number and by the bytes of their requests, twice: by stream, so that no caller keeps the others out, and by shard and kind over all streams, so
/// that a shard that is stuck does not either, by however many streams its calls come.
/// </summary>
/// <param name="requests">What the process has for requests: the part of it that large ones may take is shared.</param>
/// <param name="callsMax">See <see cref="CallsMax"/>.</param>
internal sealed class ExchangePlaces(ByteBudget requests, int callsMax = ExchangePlaces.CallsMax)
{
    /// <summary>As many as eight streams may have, twice a shard's queue: with what a waiting call takes, half a kilobyte to one, some 32 MiB.</summary>
    public const int CallsMax = 32_768;

    private readonly Lock _gate = new();
    private readonly FairPlaces _byStream = new(callsMax, requests.LargeBytesMax);
    private readonly FairPlaces _byShard = new(callsMax, requests.LargeBytesMax);

    /// <summary>Places taken.</summary>
    public int Taken
    {
        get
        {
            lock (_gate)
                return _byStream.Taken;
        }
    }

    /// <summary>Takes a place.</summary>
    /// <param name="stream">What the stream holds; a new one for each.</param>
    /// <param name="shard">As the caller's map has it; 0 where it says none.</param>
    /// <param name="isChange">Changes and reads of a shard do not take places from one another.</param>
    /// <param name="bytes">Of the call's request.</param>
    /// <param name="share">For <see cref="Return"/>.</param>
    public bool TryTake(FairPlaces.Share stream, uint shard, bool isChange, int bytes, out FairPlaces.Share share)
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

    /// <summary>Gives a place back.</summary>
    public void Return(FairPlaces.Share stream, FairPlaces.Share share, int bytes)
    {
        lock (_gate)
        {
            _byStream.Return(stream, bytes);
            _byShard.Return(share, bytes);
        }
    }
}
