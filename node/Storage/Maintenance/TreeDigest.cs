using System.Buffers.Binary;
using System.Security.Cryptography;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// SHA-256 over all entries of all trees of a snapshot, in order. It is the same on replicas with the same state. Computed in steps, so that a large tree
/// keeps no thread busy for long. One thread at a time, while the snapshot is open; dispose it before the snapshot.
/// </summary>
internal sealed class TreeDigest(ReadSnapshot snapshot) : IDisposable
{
    /// <summary>Bytes of a step that takes a few milliseconds.</summary>
    public const long StepBytes = 1 << 20;

    private readonly IncrementalHash _hash = IncrementalHash.CreateHash(HashAlgorithmName.SHA256);
    private readonly TreeId[] _trees = Enum.GetValues<TreeId>();
    private Cursor? _cursor;
    private int _tree;

    /// <summary>Continues for about this many bytes of keys and values; null if there is more.</summary>
    /// <exception cref="CorruptStoreException">A page is not what was written.</exception>
    public byte[]? Step(long bytesMax)
    {
        Span<byte> frame = stackalloc byte[9];
        for (var bytes = 0L; _tree < _trees.Length; _tree++, _cursor = null)
        {
            _cursor ??= snapshot.Cursor(_trees[_tree]);
            while (_cursor.MoveNext())
            {
                frame[0] = (byte)_trees[_tree];
                BinaryPrimitives.WriteInt32LittleEndian(frame[1..], _cursor.Key.Length);
                BinaryPrimitives.WriteInt32LittleEndian(frame[5..], _cursor.Value.Length);
                _hash.AppendData(frame);
                _hash.AppendData(_cursor.Key);
                _hash.AppendData(_cursor.Value);
                bytes += frame.Length + _cursor.Key.Length + _cursor.Value.Length;
                if (bytes >= bytesMax)
                    return null;
            }
            _cursor.Dispose();
        }
        return _hash.GetHashAndReset();
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        _cursor?.Dispose();
        _hash.Dispose();
    }
}
