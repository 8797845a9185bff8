using Google.Protobuf;

namespace KvCluster.Simulation.Protocol;

/// <summary>A replica's keys, as a replacement for a tree: the last write of each key, and its etag.</summary>
internal sealed class SimulatedTree
{
    private readonly Dictionary<int, (long WriteId, Etag Etag)> _entries;

    public SimulatedTree() => _entries = [];

    private SimulatedTree(SimulatedTree other) => _entries = new(other._entries);

    public SimulatedTree Copy() => new(this);

    /// <summary>The last write of a key, or 0.</summary>
    public long WriteOf(int key) => _entries.GetValueOrDefault(key).WriteId;

    public void Apply(SimulatedRecord record)
    {
        foreach (var write in record.Writes)
            _entries[write.Key] = (write.WriteId, record.Header.Etag);
    }

    public bool SameAs(SimulatedTree other) => _entries.Count == other._entries.Count && _entries.All(pair => other._entries[pair.Key] == pair.Value);

    public ByteString Digest() =>
        ByteString.CopyFromUtf8(string.Join(' ', _entries.OrderBy(pair => pair.Key).Select(pair => $"{pair.Key}:{pair.Value.WriteId}@{pair.Value.Etag}")));

    /// <summary>The content of a snapshot. Never empty, because a transfer has at least one chunk.</summary>
    public byte[] ToBytes()
    {
        using var stream = new MemoryStream();
        using var writer = new BinaryWriter(stream);
        foreach (var (key, (writeId, etag)) in _entries.OrderBy(pair => pair.Key))
        {
            writer.Write(key);
            writer.Write(writeId);
            writer.Write(etag.Epoch);
            writer.Write(etag.Change);
        }

        writer.Write(-1);
        return stream.ToArray();
    }

    public static SimulatedTree FromBytes(byte[] bytes)
    {
        var tree = new SimulatedTree();
        using var reader = new BinaryReader(new MemoryStream(bytes));
        for (var key = reader.ReadInt32(); key >= 0; key = reader.ReadInt32())
            tree._entries[key] = (reader.ReadInt64(), new Etag(reader.ReadUInt64(), reader.ReadUInt64()));
        return tree;
    }
}
