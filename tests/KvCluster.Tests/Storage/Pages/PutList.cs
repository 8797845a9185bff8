using KvCluster.Storage.Trees;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>Entries for <see cref="WriteBatch.PutAll"/>, each value in two parts.</summary>
internal struct PutList(IReadOnlyList<(byte[] Key, byte[] Value)> entries) : IPutSource
{
    /// <summary>How many were taken.</summary>
    public int Taken { get; private set; }

    public readonly ReadOnlySpan<byte> Key => entries[Taken].Key;

    public readonly ReadOnlySpan<byte> Header => entries[Taken].Value.AsSpan(0, Math.Min(6, entries[Taken].Value.Length));

    public readonly ReadOnlySpan<byte> Body => entries[Taken].Value.AsSpan(Header.Length);

    public bool MoveNext() => ++Taken < entries.Count;
}
