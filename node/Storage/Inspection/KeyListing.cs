using System.Globalization;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Inspection;

/// <summary>
/// Lists the keys of a tree that begin with a prefix: of <c>kv</c> the key, the length of its value and the etag that wrote it; of <c>sets</c> the key, the
/// number of members, and the etag of the last change.
/// </summary>
internal sealed class KeyListing(TreeId tree, byte[] prefix, int keysMax, TextWriter output) : ITreeVisitor
{
    private readonly string _word = tree == TreeId.Sets ? "set" : "key";
    private int _count;

    /// <inheritdoc/>
    public bool Wants(KeyRange keys) => _count < keysMax
        && (keys.Before is null || prefix.AsSpan().SequenceCompareTo(keys.Before) < 0)
        && (keys.From is null || keys.From.AsSpan().SequenceCompareTo(prefix) <= 0 || keys.From.AsSpan().StartsWith(prefix));

    /// <inheritdoc/>
    public void Reached(PageRun run)
    {
    }

    /// <inheritdoc/>
    public bool Entry(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, bool hasTree)
    {
        if (_count >= keysMax || !key.StartsWith(prefix))
            return false;
        _count++;
        try
        {
            Line(key, tree == TreeId.Sets ? OfSet(value, hasTree) : OfValue(value));
        }
        catch (CorruptStoreException fault)
        {
            Line(key, fault.Message);
        }
        return false;
    }

    /// <inheritdoc/>
    public void Member(ReadOnlySpan<byte> key, ReadOnlySpan<byte> member)
    {
    }

    /// <inheritdoc/>
    public void Damaged(CorruptStoreException fault, PageRef place, KeyRange keys) => output.WriteLine($"{_word}      {KeyText.Of(keys)}: damaged");

    private static string OfValue(ReadOnlySpan<byte> stored)
    {
        var bytes = KvValue.Read(stored, out var etag).Length;
        return string.Create(CultureInfo.InvariantCulture, $"{bytes} bytes, written by {EtagText.Of(etag)}");
    }

    private static string OfSet(ReadOnlySpan<byte> stored, bool hasTree)
    {
        var set = new SetValue(stored);
        set.Check(hasTree);
        return string.Create(CultureInfo.InvariantCulture, $"{set.Count} members{(hasTree ? " in a tree" : "")}, changed by {EtagText.Of(set.Etag)}");
    }

    private void Line(ReadOnlySpan<byte> key, string text) => output.WriteLine($"{_word}      {KeyText.Of(key)}: {text}");
}
