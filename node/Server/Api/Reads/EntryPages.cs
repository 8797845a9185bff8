using KvCluster.Storage.Encoding;
using KvCluster.Storage.Trees;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>
/// Encodes entries from a cursor, page by page: a <see cref="ScanPage"/> and a <see cref="ListResponse"/> have them in the same field. Used by one thread at a
/// time, where <see cref="ReadThreads"/> decides.
/// </summary>
/// <param name="cursor">Over the range that is left. Not disposed here.</param>
/// <param name="isReverse">From the last entry on.</param>
/// <param name="isKeysOnly">Without values.</param>
internal sealed class EntryPages(Cursor cursor, bool isReverse, bool isKeysOnly)
{
    /// <summary>Bound for a page with several entries: gRPC's default message limit, less the page's other fields and two keys.</summary>
    public const int EntriesBytesMax = (4 << 20) - (4 << 10);

    // Whether the cursor is on an entry for which the last page had no space.
    private bool _isAhead;

    // The place of the last entry's key in the page.
    private Range _lastKey;

    /// <summary>The maximum number of further entries.</summary>
    public ulong EntriesLeft { get; set; } = ulong.MaxValue;

    /// <summary>The maximum number of further bytes of keys and values. An entry is added as long as there is one left.</summary>
    public ulong BytesLeft { get; set; } = ulong.MaxValue;

    /// <summary>The shard's time, from which the lives of the next page's keys are counted; null if they are not asked for.</summary>
    public ulong? NowMs { get; set; }

    /// <summary>Whether a limit was reached. Entries may be left then.</summary>
    public bool IsAtLimit => EntriesLeft == 0 || BytesLeft == 0;

    /// <summary>The key of the last entry of the page that was filled last; empty if it has none.</summary>
    public ReadOnlySpan<byte> LastKeyOf(MessageBytes page) => page.Written[_lastKey];

    /// <summary>
    /// Adds entries to a page until it has <paramref name="pageBytes"/>, but never beyond <see cref="EntriesBytesMax"/> unless it is a single one. False if no
    /// entry is left, or a limit was reached.
    /// </summary>
    public bool Fill(MessageBytes page, int pageBytes)
    {
        var isEmpty = true;
        _lastKey = default;
        while (!IsAtLimit && page.Count < pageBytes)
        {
            if (!_isAhead && !(isReverse ? cursor.MovePrevious() : cursor.MoveNext()))
                return false;
            var key = cursor.Key;
            var value = KvValue.Read(isKeysOnly ? cursor.Beginning(KvValue.HeaderBytesMax) : cursor.Value, out var etag, out var keyLife);
            var life = LifeField.Of(keyLife, NowMs);
            if (isKeysOnly)
                value = default;
            var entryBytes = EntryBytes(key, value) + life.Size;
            _isAhead = !isEmpty && page.Count + WireWriter.BytesFieldSize(entryBytes) > EntriesBytesMax;
            if (_isAhead)
                break;
            var keyAt = page.Count + WireWriter.BytesFieldSize(entryBytes) - entryBytes + WireWriter.BytesFieldSize(key.Length) - key.Length;
            _lastKey = keyAt..(keyAt + key.Length);
            var writer = new WireWriter(page.Append(WireWriter.BytesFieldSize(entryBytes)));
            writer.BytesHeader(ScanPage.EntriesFieldNumber, entryBytes);
            writer.BytesField(Entry.KeyFieldNumber, key);
            writer.BytesField(Entry.ValueFieldNumber, value);
            writer.EtagField(Entry.EtagFieldNumber, etag);
            life.WriteTo(ref writer, Entry.LifeFieldNumber);
            isEmpty = false;
            EntriesLeft--;
            BytesLeft -= Math.Min(BytesLeft, (ulong)(key.Length + value.Length));
        }
        return !IsAtLimit;
    }

    /// <summary>Whether an entry follows those added. The next page has it.</summary>
    public bool HasMore() => _isAhead || (_isAhead = isReverse ? cursor.MovePrevious() : cursor.MoveNext());

    private static int EntryBytes(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) =>
        WireWriter.BytesFieldSize(key.Length) + WireWriter.BytesFieldSize(value.Length) + WireWriter.BytesFieldSize(WireWriter.EtagBytes);
}
