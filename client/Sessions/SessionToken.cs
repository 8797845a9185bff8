using System.Collections.Concurrent;
using KvCluster.V1;

namespace KvCluster.Client.Sessions;

/// <summary>
/// The newest position of each shard in this client's answers, which its session reads must reflect, with the lineage that they belong to. A position of
/// another lineage never replaces one, because their etags are not comparable: the next session read is refused, so that its caller learns of it, and then the
/// token is emptied. Thread-safe.
/// </summary>
internal sealed class SessionToken
{
    private readonly ConcurrentDictionary<ShardId, Seen> _shards = new();

    /// <summary>Records the position of an answer.</summary>
    public void Raise(ShardPosition position) =>
        (_shards.TryGetValue(new(position.Shard), out var seen) ? seen : _shards.GetOrAdd(new(position.Shard), static _ => new Seen()))
            .Raise(position.Etag, position.Lineage);

    /// <summary>Forgets all positions, because a node has refused one of them as of another lineage.</summary>
    public void Forget() => _shards.Clear();

    /// <summary>The options of a read.</summary>
    /// <param name="mode">How up to date it must be.</param>
    /// <param name="shard">The only shard that it reads; null if it may read several.</param>
    /// <returns>Null if none need to be sent.</returns>
    public ReadOptions? ToOptions(KvReadMode mode, ShardId? shard) => mode == KvReadMode.Leader ? null : ToMessage(mode, shard);

    // A method of its own, because the object of its closure is made where it begins.
    private ReadOptions ToMessage(KvReadMode mode, ShardId? shard)
    {
        var options = new ReadOptions { Mode = ToMessage(mode) };
        if (mode == KvReadMode.Session)
            options.Seen.AddRange(_shards.Where(seen => shard is null || seen.Key == shard).Select(seen => ToMessage(seen.Key, seen.Value)));
        return options;
    }

    private static ReadMode ToMessage(KvReadMode mode) => mode switch
    {
        KvReadMode.Leader => ReadMode.Leader,
        KvReadMode.Quorum => ReadMode.Quorum,
        KvReadMode.Replica => ReadMode.Replica,
        KvReadMode.Session => ReadMode.Session,
        KvReadMode.Stale => ReadMode.Stale,
        _ => throw new ArgumentOutOfRangeException(nameof(mode), mode, "There is no such read mode."),
    };

    private static Position ToMessage(ShardId shard, Seen seen)
    {
        var (etag, lineage) = seen.Newest;
        return new Position { ShardId = shard, Etag = etag.ToMessage(), Lineage = lineage };
    }

    private sealed class Seen
    {
        private readonly Lock _lock = new();
        private Etag _etag;
        private ulong _lineage;

        public (Etag Etag, ulong Lineage) Newest
        {
            get
            {
                lock (_lock)
                    return (_etag, _lineage);
            }
        }

        public void Raise(Etag etag, ulong lineage)
        {
            lock (_lock)
            {
                // Errors, and positions from other sources, may name no lineage.
                if (_lineage == 0)
                    _lineage = lineage;
                if ((lineage == 0 || lineage == _lineage) && etag > _etag)
                    _etag = etag;
            }
        }
    }
}
