namespace KvCluster.Storage.Encoding;

/// <summary>
/// Encodes what the operations of one request did, one after the other (FORMAT.md, "Results of operations"); <see cref="OperationResultReader"/> decodes it.
/// Entries are gathered before the result that they belong to is added. Reused; not thread-safe.
/// </summary>
internal sealed class OperationResults
{
    /// <summary>The most bytes of a result without its entries.</summary>
    public const int ResultBytesMax = 1 + (4 * Varint.BytesMax);

    /// <summary>The most bytes of an entry besides its key and value.</summary>
    public const int EntryOverheadMax = 4 * Varint.BytesMax;

    /// <summary>Memory that is kept from one request to the next.</summary>
    private const int BytesKept = 64 << 10;

    private readonly ByteBuffer _results = new(0);
    private readonly ByteBuffer _entries = new(0);
    private ulong _entryCount;

    /// <summary>Bytes encoded, with the entries gathered.</summary>
    public int Bytes => _results.Count + _entries.Count;

    /// <summary>What was encoded.</summary>
    public ReadOnlySpan<byte> Written => _results.Written;

    /// <summary>Discards everything.</summary>
    public void Clear()
    {
        _results.Clear(BytesKept);
        _entries.Clear(BytesKept);
        _entryCount = 0;
    }

    /// <summary>Gathers an entry for the next result.</summary>
    public void AddEntry(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, Etag etag)
    {
        _entries.AppendWithLength(key);
        _entries.AppendWithLength(value);
        _entries.AppendNumber(etag.Epoch);
        _entries.AppendNumber(etag.Change);
        _entryCount++;
    }

    /// <summary>Adds the result of an operation, with the entries gathered.</summary>
    /// <param name="etag">The etag of its change; <see cref="Etag.None"/> if it has none.</param>
    /// <param name="existed">Whether there was what it removes or looks for; null if that means nothing.</param>
    /// <param name="number">A number, if it has one.</param>
    /// <param name="more">Whether there is more than what it read or removed.</param>
    public void Add(Etag etag = default, bool? existed = null, long? number = null, bool more = false)
    {
        var flags = (etag == Etag.None ? 0 : ResultFlags.Etag)
            | (existed is null ? 0 : ResultFlags.IsExistenceKnown) | (existed == true ? ResultFlags.Existed : 0)
            | (number is null ? 0 : ResultFlags.Number) | (_entryCount == 0 ? 0 : ResultFlags.Entries) | (more ? ResultFlags.More : 0);
        _results.Append([(byte)flags]);
        if (etag != Etag.None)
        {
            _results.AppendNumber(etag.Epoch);
            _results.AppendNumber(etag.Change);
        }
        if (number is { } known)
            _results.AppendNumber(Varint.Fold((ulong)known));
        if (_entryCount == 0)
            return;
        _results.AppendNumber(_entryCount);
        _results.Append(_entries.Written);
        _entries.Clear(BytesKept);
        _entryCount = 0;
    }
}

/// <summary>Which parts of a result follow its first byte, and what that byte says by itself.</summary>
[Flags]
internal enum ResultFlags : byte
{
    /// <summary>The result has no further part.</summary>
    None = 0,

    /// <summary>An etag follows.</summary>
    Etag = 1,

    /// <summary><see cref="Existed"/> means something.</summary>
    IsExistenceKnown = 2,

    /// <summary>The key or member that the operation removes or looks for existed.</summary>
    Existed = 4,

    /// <summary>A number follows.</summary>
    Number = 8,

    /// <summary>Entries follow.</summary>
    Entries = 16,

    /// <summary>There is more than what was read or removed.</summary>
    More = 32,
}
