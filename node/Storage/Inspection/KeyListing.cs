using System.Globalization;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Inspection;

/// <summary>Lists the keys of a tree that begin with a prefix: the key, the etag that wrote it, and the length of its value.</summary>
internal sealed class KeyListing(byte[] prefix, int keysMax, TextWriter output) : ITreeVisitor
{
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
            var bytes = KvValue.Read(value, out var etag).Length;
            output.WriteLine(string.Create(CultureInfo.InvariantCulture, $"key      {KeyText.Of(key)}: {bytes} bytes, written by {EtagText.Of(etag)}"));
        }
        catch (CorruptStoreException fault)
        {
            output.WriteLine($"key      {KeyText.Of(key)}: {fault.Message}");
        }
        return false;
    }

    /// <inheritdoc/>
    public void Member(ReadOnlySpan<byte> key, ReadOnlySpan<byte> member)
    {
    }

    /// <inheritdoc/>
    public void Damaged(CorruptStoreException fault, PageRef place, KeyRange keys) => output.WriteLine($"key      {KeyText.Of(keys)}: damaged");
}
