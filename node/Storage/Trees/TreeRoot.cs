using System.Runtime.InteropServices;

namespace KvCluster.Storage.Pages;

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
