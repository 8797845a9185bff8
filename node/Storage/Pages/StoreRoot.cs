using System.Runtime.InteropServices;

namespace KvCluster.Storage.Pages;

/// <summary>One state of all trees. Immutable once published; when a checkpoint finishes, it is replaced by a root that refers to the file.</summary>
internal sealed class StoreRoot(Etag etag, long shardTime, long wallTime, ulong batch, TreeRoot[] trees)
{
    /// <summary>Trees in a store, used or not.</summary>
    public const int TreesMax = 16;

    /// <summary>The last change in it.</summary>
    public Etag Etag { get; } = etag;

    /// <summary>The shard time of its last record, in microseconds; 0 before the first record.</summary>
    public long ShardTime { get; } = shardTime;

    /// <summary>The wall time of its last record that has one, in microseconds since 1970; 0 if none has.</summary>
    public long WallTime { get; } = wallTime;

    /// <summary>Number of the batch that created it, increasing. Pages with a higher number are not in it.</summary>
    public ulong Batch { get; } = batch;

    /// <summary>The roots, indexed by <see cref="TreeId"/>.</summary>
    public TreeRoot[] Trees { get; } = trees;
}

/// <summary>The root of a tree, as in the meta page; all zero is an empty tree.</summary>
[StructLayout(LayoutKind.Sequential)]
internal struct TreeRoot
{
    /// <summary>The topmost page.</summary>
    public PageLink Link;

    /// <summary>Keys in the tree.</summary>
    public ulong Count;

    /// <summary>The same tree with its topmost page in the file, where a checkpoint has placed it.</summary>
    public readonly unsafe TreeRoot ToPlaced(byte* page) => this with { Link = PageLink.ToPlaced(page) };
}
