using System.Runtime.InteropServices;

namespace KvCluster.Storage.Pages;

/// <summary>One state of all trees. Immutable once published; a checkpoint's finish replaces it by one that refers to the file.</summary>
internal sealed class StoreRoot(UInt128 etag, ulong batch, TreeRoot[] trees)
{
    /// <summary>Trees in a store, used or not.</summary>
    public const int TreesMax = 16;

    /// <summary>The last change in it.</summary>
    public UInt128 Etag { get; } = etag;

    /// <summary>Number of the batch that made it, rising; pages of a higher number are not in it.</summary>
    public ulong Batch { get; } = batch;

    /// <summary>By <see cref="TreeId"/>.</summary>
    public TreeRoot[] Trees { get; } = trees;
}

/// <summary>Where a tree begins, as in the meta page; all zero is an empty tree.</summary>
[StructLayout(LayoutKind.Sequential)]
internal struct TreeRoot
{
    /// <summary>The topmost page.</summary>
    public ulong Reference;

    /// <summary>Its checksum, when it lies in the file.</summary>
    public uint Checksum;

    /// <summary>Keys in the tree.</summary>
    public ulong Count;
}
