namespace KvCluster.Storage.Trees;

/// <summary>Entries to put, one after the other, for <see cref="WriteBatch.PutAll"/>. It is at its first entry when it is passed.</summary>
internal interface IPutSource
{
    /// <summary>Whether the keys ascend and are many, so that the leaf behind that of one key is probably the next that is needed.</summary>
    static virtual bool Ascends => false;

    /// <summary>
    /// The key of the entry. The bytes stay valid until <see cref="MoveNext"/> is called a second time, because the next key is compared with this one.
    /// </summary>
    ReadOnlySpan<byte> Key { get; }

    /// <summary>The first part of its value.</summary>
    ReadOnlySpan<byte> Header { get; }

    /// <summary>The rest of its value.</summary>
    ReadOnlySpan<byte> Body { get; }

    /// <summary>Moves to the next entry; false if there is none.</summary>
    bool MoveNext();
}
