using KvCluster.Client.Routing;

namespace KvCluster.Client.Transport;

/// <summary>
/// Puts of several shards by today's map: a batch for each shard, in which they keep their order. Used by the client library and the router; one thread.
/// </summary>
/// <param name="table">The map.</param>
/// <param name="capacity">About how many bytes they have together. Most are of one shard.</param>
internal sealed class PutParts(RouteTable table, int capacity)
{
    private const int BatchBytesMin = 1 << 10;

    private readonly List<PutBatch> _batches = [];
    private readonly Dictionary<ShardId, int> _indexes = [];

    /// <summary>The batches, in the order of their first puts.</summary>
    public IReadOnlyList<PutBatch> Batches => _batches;

    /// <summary>The index of the batch that has the last put.</summary>
    public int Last { get; private set; }

    /// <summary>Adds a put.</summary>
    public void Add(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
    {
        var place = table.PlaceOf(key);
        if (!_indexes.TryGetValue(place.Shard, out var index))
        {
            _indexes.Add(place.Shard, index = _batches.Count);
            _batches.Add(new PutBatch(index == 0 ? capacity : BatchBytesMin) { Place = place });
        }
        _batches[index].Add(key, value);
        Last = index;
    }
}
