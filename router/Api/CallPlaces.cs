using KvCluster.ServiceDefaults.Memory;

namespace KvCluster.Router.Api;

/// <summary>
/// The places and the request bytes of the open calls of one exchange. Shards share both, of the stream (<see cref="FairPlaces"/>) and of the process
/// (<see cref="ExchangePlaces"/>), so a stuck shard does not take those of others. Used under the exchange's lock.
/// </summary>
internal sealed class CallPlaces(ExchangePlaces process, ByteBudget requests)
{
    private readonly FairPlaces _ofStream = new(ExchangeLimits.CallsMax);
    private readonly FairPlaces.Share _heldOfProcess = new();
    private StreamBudget _bytes = new(requests);

    /// <summary>The number of open calls.</summary>
    public int Taken => _ofStream.Taken;

    /// <summary>Takes a place for a call. If there is none, returns why, for the caller.</summary>
    public string? TryTake(ShardId shard, bool isChange, int requestBytes, out Place place)
    {
        place = default;
        if (!_ofStream.TryTake(shard, isChange, requestBytes, out var ofStream))
            return "The shard has reached the router's limit of open calls for one shard; nothing was applied. Try again.";
        if (!process.TryTake(_heldOfProcess, shard, isChange, requestBytes, out var ofProcess))
        {
            _ofStream.Return(ofStream, requestBytes);
            return "The shard has reached the router's limit of open calls for one shard; nothing was applied. Try again.";
        }
        place = new Place(ofStream, ofProcess, requestBytes);
        if (_bytes.TryUse(requestBytes))
            return null;
        ReturnShares(place);
        return "The router has reached its limit of memory for requests; nothing was applied. Try again.";
    }

    public void Return(in Place place)
    {
        _bytes.Free(place.RequestBytes);
        ReturnShares(place);
    }

    private void ReturnShares(in Place place)
    {
        _ofStream.Return(place.OfStream, place.RequestBytes);
        process.Return(_heldOfProcess, place.OfProcess, place.RequestBytes);
    }

    /// <summary>The place of one call.</summary>
    internal readonly record struct Place(FairPlaces.Share OfStream, FairPlaces.Share OfProcess, int RequestBytes);
}
