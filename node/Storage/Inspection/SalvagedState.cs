using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Transactions;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Inspection;

/// <summary>
/// Writes what can be read of a damaged replica into a new data file: entries of trees first, then records. Memory is bounded: a checkpoint follows each
/// <see cref="BatchBytes"/>. One thread.
/// </summary>
/// <param name="pages">The new data file.</param>
/// <param name="shardTime">The shard time of the state that is copied; 0 if there is none.</param>
/// <param name="findsLives">Whether the trees of expiries and owned keys are made again from the keys, and not copied.</param>
internal sealed class SalvagedState(PageStore pages, long shardTime, bool findsLives = false) : ITreeVisitor
{
    private const long BatchBytes = 64 << 20;

    private WriteBatch? _batch;
    private long _bytes;
    private ulong _checkpoints;
    private TreeId _tree;

    /// <summary>The last change of the set whose members follow.</summary>
    private Etag _setEtag;

    /// <summary>
    /// Entries of sound pages that were left out because they cannot be decoded, large sets with all their members. The check has named them.
    /// </summary>
    public long LeftOut { get; private set; }

    /// <summary>Copies what can be read of a tree.</summary>
    public void Copy(PageSpace space, TreeRoot root, TreeId tree)
    {
        _tree = tree;
        new TreeReading(space, this).Read(root);
    }

    /// <summary>Applies a record, perhaps without what it does to sessions.</summary>
    public void Apply(ReadOnlySpan<byte> body, bool hasSessions)
    {
        RecordApplier.Apply(Batch(), body, hasSessions: hasSessions);
        Count(body.Length);
    }

    /// <summary>Makes it the state as of a record. Both meta pages name it.</summary>
    public void Finish(in RecordRef last)
    {
        // Without a record there is nothing in the trees, and the new file is already that.
        if (last.Etag == Etag.None)
            return;
        Batch();
        var covers = new CheckpointPosition(last.Etag, StoreDirectory.FirstPosition, last.Checksum);
        Write(covers);
        Checkpoint(covers, repeats: true);
    }

    /// <inheritdoc/>
    public bool Wants(KeyRange keys) => true;

    /// <inheritdoc/>
    public void Reached(PageRun run)
    {
    }

    /// <inheritdoc/>
    public bool Entry(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, bool hasTree)
    {
        if (StoredEntry.WhyUnreadable(_tree, key, value, hasTree) is not null)
        {
            // Nothing says of which change the members of a large set would be.
            LeftOut++;
            return false;
        }
        if (_tree == TreeId.Sets)
        {
            var set = new SetValue(value);
            _setEtag = set.Etag;
            for (var index = 0; index < set.SmallCount; index++)
                Member(key, set[index]);
            return true;
        }
        // What may be compressed is behind the header.
        var header = _tree == TreeId.Kv ? value.Length - KvValue.Read(value, out _).Length : value.Length;
        Batch().Put(_tree, key, value[..header], value[header..]);
        if (findsLives && _tree == TreeId.Kv)
            KeyLives.Find(Batch(), key, value);
        Count(key.Length + value.Length);
        return true;
    }

    /// <inheritdoc/>
    /// <remarks>Of a set of which something is damaged, the other members are kept, with the etag of the whole set.</remarks>
    public void Member(ReadOnlySpan<byte> key, ReadOnlySpan<byte> member)
    {
        Batch().SetAdd(key, member, _setEtag);
        Count(key.Length + member.Length);
    }

    /// <inheritdoc/>
    /// <remarks>The check has named it before.</remarks>
    public void Damaged(CorruptStoreException fault, PageRef place, KeyRange keys)
    {
    }

    private WriteBatch Batch()
    {
        if (_batch is null)
        {
            _batch = pages.Begin();
            _batch.ShardTime = Math.Max(_batch.ShardTime, shardTime);
        }
        return _batch;
    }

    /// <summary>The etags of the checkpoints in between are lower than that of any record. They are overwritten in the end.</summary>
    private void Count(int bytes)
    {
        if ((_bytes += bytes) >= BatchBytes)
            Write(new CheckpointPosition(new Etag(0, ++_checkpoints), default, 0));
    }

    private void Write(CheckpointPosition covers)
    {
        pages.Roots.Seal(_batch!, covers.Etag);
        pages.Roots.Publish(covers.Etag);
        Checkpoint(covers, repeats: false);
        (_batch, _bytes) = (null, 0);
    }

    private void Checkpoint(CheckpointPosition covers, bool repeats)
    {
        if (pages.BeginCheckpoint(_ => covers, covers.Etag, repeats) is not { } checkpoint)
            return;
        checkpoint.Write();
        pages.FinishCheckpoint(checkpoint);
    }
}
