using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Inspection;

/// <summary>Gets what <see cref="TreeReading"/> finds, in the order of the keys.</summary>
internal interface ITreeVisitor
{
    /// <summary>Whether to read the page that has these keys.</summary>
    bool Wants(KeyRange keys);

    /// <summary>An intact page or run.</summary>
    void Reached(PageRun run);

    /// <summary>An entry whose value is intact. The spans are valid during the call.</summary>
    /// <param name="key">Its key.</param>
    /// <param name="value">Its value; for an entry with a tree, the value beside the tree.</param>
    /// <param name="hasTree">Whether it has a tree, as a large set does.</param>
    /// <returns>Whether to read the members in its tree, if it has one. They follow then.</returns>
    bool Entry(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, bool hasTree);

    /// <summary>A member of the large set whose entry was the last one.</summary>
    void Member(ReadOnlySpan<byte> key, ReadOnlySpan<byte> member);

    /// <summary>Something that cannot be read or is not what was written.</summary>
    /// <param name="fault">Names the file and the offset.</param>
    /// <param name="place">The page.</param>
    /// <param name="keys">The keys that cannot be read because of it, or, where only the shape of the tree is wrong, that it is about.</param>
    void Damaged(CorruptStoreException fault, PageRef place, KeyRange keys);
}

/// <summary>A range of keys.</summary>
/// <param name="From">The first key that may be in it; null if nothing comes before it.</param>
/// <param name="Before">The first key after it; null if nothing comes after it.</param>
internal readonly record struct KeyRange(byte[]? From, byte[]? Before);
