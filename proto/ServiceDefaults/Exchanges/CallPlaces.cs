// The open calls of one exchange, at a node or at a router. Used under the exchange's lock.
using KvCluster.ServiceDefaults.Memory;

namespace KvCluster.ServiceDefaults.Exchanges;

/// <summary>
/// The places and the request bytes of the calls. Shards share both, of the stream (<see cref="FairPlaces"/>) and of the process
/// (<see cref="ExchangePlaces"/>), so a stuck shard does not take those of others.
/// </summary>
/// <param name="process">The open calls of all exchanges.</param>
/// <param name="requests">The process's budget for requests.</param>
internal sealed class CallPlaces(ExchangePlaces process, ByteBudget requests)
{
    private readonly FairPlaces _ofStream = new(ExchangeLimits.CallsMax);
    private readonly FairPlaces.Share _heldOfProcess = new();
    private StreamBudget _bytes = new(requests);

    /// <summary>The number of open calls.</summary>
    public int Taken => _ofStream.Taken;

    /// <summary>Takes a place for a call.</summary>
    public PlaceOutcome TryTake(ShardId shard, bool isChange, int requestBytes, out CallPlace place)
    {
        place = default;
        if (!_ofStream.TryTake(shard, isChange, requestBytes, out var ofStream))
            return PlaceOutcome.ShardIsFull;
        if (!process.TryTake(_heldOfProcess, shard, isChange, requestBytes, out var ofProcess))
        {
            _ofStream.Return(ofStream, requestBytes);
            return PlaceOutcome.ShardIsFull;
        }
        if (_bytes.TryUse(requestBytes))
        {
            place = new CallPlace(ofStream, ofProcess, requestBytes);
            return PlaceOutcome.Taken;
        }
        _ofStream.Return(ofStream, requestBytes);
        process.Return(_heldOfProcess, ofProcess, requestBytes);
        return PlaceOutcome.MemoryIsShort;
    }

    /// <summary>A call has ended. Does nothing for one that was refused.</summary>
    public void Return(in CallPlace place)
    {
        if (place.OfStream is null)
            return;
        _bytes.Free(place.RequestBytes);
        _ofStream.Return(place.OfStream, place.RequestBytes);
        process.Return(_heldOfProcess, place.OfProcess!, place.RequestBytes);
    }
}

/// <summary>The place of one call; default if it was refused.</summary>
internal readonly record struct CallPlace(FairPlaces.Share? OfStream, FairPlaces.Share? OfProcess, int RequestBytes);

/// <summary>Whether a call has a place. Without one it is refused as busy, and nothing of it is kept.</summary>
internal enum PlaceOutcome
{
    /// <summary>It has one.</summary>
    Taken,

    /// <summary>The calls of its kind to its shard have their share of the places.</summary>
    ShardIsFull,

    /// <summary>There is no memory for its request.</summary>
    MemoryIsShort,
}
