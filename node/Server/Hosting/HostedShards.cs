using System.Collections.Frozen;
using KvCluster.Node.Map;

namespace KvCluster.Node.Hosting;

/// <summary>The shards of a node at one moment. Immutable; swapped by reference, so that requests and frames look shards up without a lock.</summary>
internal sealed class HostedShards
{
    public static readonly HostedShards None = new([]);

    private readonly HostedShard[] _byStart;
    private readonly FrozenDictionary<ShardId, HostedShard> _byId;

    private HostedShards(IEnumerable<HostedShard> shards)
    {
        _byStart = [.. shards];
        Array.Sort(_byStart, static (x, y) => x.Route.Start.Span.SequenceCompareTo(y.Route.Start.Span));
        _byId = _byStart.ToFrozenDictionary(static shard => shard.Shard);
    }

    /// <summary>All shards, ordered by start.</summary>
    public IReadOnlyList<HostedShard> All => _byStart;

    public HostedShards With(HostedShard shard) => new([.. _byStart, shard]);

    public HostedShards Without(HostedShard shard) => new(_byStart.Where(other => other != shard));

    /// <summary>A shard by its id; null if this node has none.</summary>
    public HostedShard? Find(ShardId shard) => _byId.GetValueOrDefault(shard);

    /// <summary>The shard that owns a key; null if it is not here.</summary>
    public HostedShard? Find(ReadOnlySpan<byte> key)
    {
        var index = Ranges.FindAt<HostedShard>(_byStart, static shard => shard.Route.Start.Memory, key);
        return index >= 0 && _byStart[index].Owns(key) ? _byStart[index] : null;
    }

    /// <summary>The shard that owns the greatest possible key before the given one. An empty key means the end of all keys.</summary>
    public HostedShard? FindBefore(ReadOnlySpan<byte> key)
    {
        var index = Ranges.FindBefore<HostedShard>(_byStart, static shard => shard.Route.Start.Memory, key);
        if (index < 0)
            return null;
        var end = _byStart[index].Route.End.Span;
        var reaches = end.IsEmpty || (!key.IsEmpty && end.SequenceCompareTo(key) >= 0);
        return reaches ? _byStart[index] : null;
    }
}
