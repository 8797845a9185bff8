using System.Buffers.Binary;
using System.Security.Cryptography;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Maintenance;

/// <summary>
/// SHA-256 over all entries of all trees of a snapshot, in order, and its times. It is the same on replicas with the same state. Computed in steps, so that a
/// large tree keeps no thread busy for long. One thread at a time, while the snapshot is open; dispose it before the snapshot.
/// </summary>
internal sealed class TreeDigest(ReadSnapshot snapshot) : IDisposable
{
    /// <summary>Bytes of a step that takes a few milliseconds.</summary>
    public const long StepBytes = 1 << 20;

    private readonly IncrementalHash _hash = IncrementalHash.CreateHash(HashAlgorithmName.SHA256);
    private readonly TreeId[] _trees = Enum.GetValues<TreeId>();
    private Cursor? _cursor;

    /// <summary>The members of the set at which the cursor is.</summary>
    private SetCursor? _members;
    private int _tree;

    /// <summary>Computes the digest of a snapshot without pauses. Any thread.</summary>
    public static byte[] Of(ReadSnapshot snapshot)
    {
        using var digest = new TreeDigest(snapshot);
        return digest.Step(long.MaxValue)!;
    }

    /// <summary>
    /// Computes the same digest asynchronously. It pauses as long as it works, so it takes at most half a core whatever the size of the tree. Run only one
    /// at a time. Returns null if the snapshot has to end because too much was written meanwhile. Any thread; the snapshot must stay open until this
    /// completes.
    /// </summary>
    public static async Task<byte[]?> OfAsync(ReadSnapshot snapshot, TimeProvider time, CancellationToken cancellationToken)
    {
        using var digest = new TreeDigest(snapshot);
        while (true)
        {
            var began = time.GetTimestamp();
            if (digest.Step(StepBytes) is { } whole)
                return whole;
            if (snapshot.IsTooOld)
                return null;
            await Task.Delay(time.GetElapsedTime(began), time, cancellationToken).ConfigureAwait(false);
            // Leave the thread that ran the timer; it is not meant for this work.
            await Task.Yield();
            cancellationToken.ThrowIfCancellationRequested();
        }
    }

    /// <summary>Continues for about this many bytes of keys, values and members; null if there is more.</summary>
    /// <exception cref="CorruptStoreException">A page is not what was written.</exception>
    public byte[]? Step(long bytesMax)
    {
        for (var bytesLeft = bytesMax; _tree < _trees.Length; _tree++, _cursor = null)
        {
            var tree = _trees[_tree];
            _cursor ??= snapshot.Cursor(tree);
            while (AppendMembers(ref bytesLeft) && _cursor.MoveNext())
            {
                if (tree != TreeId.Sets)
                {
                    Append(_cursor.Key, _cursor.Value, ref bytesLeft);
                }
                else
                {
                    // In the same way whether the members are in the value or in a tree, in which replicas may differ.
                    var set = _cursor.Set;
                    Append(_cursor.Key, set.Header, ref bytesLeft);
                    _members = set.Members();
                }
                if (bytesLeft <= 0)
                    return null;
            }
            if (_members is not null)
                return null;
            _cursor.Dispose();
        }
        AppendTime(snapshot.Root.ShardTime);
        // Nodes of format level 1 know no wall time, and where they are no record has one.
        if (snapshot.Root.WallTime != 0)
            AppendTime(snapshot.Root.WallTime);
        return _hash.GetHashAndReset();
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        _members?.Dispose();
        _cursor?.Dispose();
        _hash.Dispose();
    }

    /// <summary>Appends what is left of the set at which the cursor is. False if more bytes are left of it than may be appended.</summary>
    private bool AppendMembers(ref long bytesLeft)
    {
        while (_members is not null)
        {
            if (bytesLeft <= 0)
                return false;
            if (_members.MoveNext())
            {
                Append(_members.Member, default, ref bytesLeft);
                continue;
            }
            _members.Dispose();
            _members = null;
        }
        return true;
    }

    private void AppendTime(long microseconds)
    {
        Span<byte> time = stackalloc byte[sizeof(long)];
        BinaryPrimitives.WriteInt64LittleEndian(time, microseconds);
        _hash.AppendData(time);
    }

    private void Append(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, ref long bytesLeft)
    {
        Span<byte> frame = stackalloc byte[9];
        frame[0] = (byte)_trees[_tree];
        BinaryPrimitives.WriteInt32LittleEndian(frame[1..], key.Length);
        BinaryPrimitives.WriteInt32LittleEndian(frame[5..], value.Length);
        _hash.AppendData(frame);
        _hash.AppendData(key);
        _hash.AppendData(value);
        bytesLeft -= frame.Length + key.Length + value.Length;
    }
}
