using KvCluster.Client.Transport;

namespace KvCluster.Client.Loading;

/// <summary>Entries of one shard that are written together, all or nothing. Filled by the adder's thread; nothing is added once it is sent.</summary>
/// <param name="puts">The entries; empty.</param>
/// <param name="shard">Their shard.</param>
/// <param name="first">The number of the first entry. All entries before it that are in no older open batch are acknowledged.</param>
internal sealed class LoadBatch(PutBatch puts, ShardId shard, long first)
{
    /// <summary>Hashes of the keys, made when they are first looked at. Equal hashes of different keys only cost a wait.</summary>
    private HashSet<int>? _hashes;

    public PutBatch Puts { get; } = puts;

    public ShardId Shard { get; } = shard;

    public long First { get; } = first;

    /// <summary>The greatest key.</summary>
    public byte[] Greatest { get; private set; } = [];

    /// <summary>No more is added.</summary>
    public void Seal()
    {
        ReadOnlySpan<byte> greatest = default;
        for (var entries = Puts.Read(); entries.MoveNext();)
        {
            if (entries.Key.SequenceCompareTo(greatest) > 0)
                greatest = entries.Key;
        }
        Greatest = greatest.ToArray();
    }

    /// <summary>Whether a key may be among the sent ones.</summary>
    public bool MayHave(ReadOnlySpan<byte> key)
    {
        if (key.SequenceCompareTo(Greatest) > 0)
            return false;
        if (_hashes is null)
        {
            _hashes = [];
            for (var entries = Puts.Read(); entries.MoveNext();)
                _hashes.Add(HashOf(entries.Key));
        }
        return _hashes.Contains(HashOf(key));
    }

    private static int HashOf(ReadOnlySpan<byte> key)
    {
        var hash = new HashCode();
        hash.AddBytes(key);
        return hash.ToHashCode();
    }
}
