using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Decides before the first operation of a request is applied whether all of them can be, because what is applied is not taken back. Each operation is judged
/// by what it will find when its turn comes: the state, and what those before it in the request do to it. Used by <see cref="MergedTransaction"/>; writer
/// executor.
/// </summary>
/// <remarks>
/// The bytes that a request reads are known exactly if nothing before the read changes what it reads. Otherwise a bound is computed: of a key, the larger of
/// the stored value and those that are put before; of a range, what is stored of it without ranges that are deleted before, for as many keys more as are
/// deleted singly, and all that is put into it before. So a request that reads what it has just overwritten counts both values of each key. A request is also
/// refused if its many deletes of ranges before its scans make this take too long.
/// </remarks>
/// <param name="batch">The newest state.</param>
/// <param name="operations">What is to be applied.</param>
/// <param name="resultBytesMax">The bound of the results; 0 if none are wanted.</param>
internal ref struct RequestCheck(WriteBatch batch, RequestOperations operations, int resultBytesMax)
{
    /// <summary>Comparisons of what is stored with the ranges that the request deletes before it reads: some milliseconds.</summary>
    private const int ComparisonsMax = 1 << 18;

    private readonly ReadOnlySpan<byte> _operations = operations.Encoded;
    private readonly bool _changes = operations.Changes > 0;
    private int _comparisonsLeft = ComparisonsMax;

    /// <summary>
    /// A put of a larger value is remembered, because a touch behind it copies the value. There are at most some hundred of them in a request.
    /// </summary>
    private const int LargeValueBytes = 32 << 10;

    /// <summary>Where large values are put, and the bytes of the values that are touched.</summary>
    private List<int>? _largePuts;
    private long _bytesTouched;

    /// <summary>Deletes of ranges so far.</summary>
    private int _ranges;

    /// <summary>Keys that sessions are to own so far, and their bytes.</summary>
    private ulong _ownedKeys;
    private ulong _ownedBytes;

    /// <summary>
    /// <see cref="WriteOutcome.Applied"/> if all operations can be applied, otherwise how the request ends. Ranges that are deleted are not looked at.
    /// </summary>
    public WriteOutcome Run()
    {
        long bytes = 0;
        var reader = new RequestReader(_operations);
        for (var index = 0; reader.MoveNext(); index++)
        {
            if (reader.Code == RequestOperation.Increment && CheckIncrement(reader, index) is not WriteOutcome.Applied and var notAdded)
                return notAdded;
            if (reader.Code == RequestOperation.PutOnTerms && reader.Terms.Owner != 0 && CheckOwner(reader) is not WriteOutcome.Applied and var notOwned)
                return notOwned;
            if (!MayTouch(reader))
                return WriteOutcome.RangeTooLarge;
            _ranges += reader.Code == RequestOperation.DeleteRange ? 1 : 0;
            // A request that only reads is read once, and refused as soon as it has read too much.
            if (resultBytesMax == 0 || !_changes)
                continue;
            bytes += OperationResults.ResultBytesMax + BytesOf(reader, index, resultBytesMax - bytes);
            if (bytes > resultBytesMax)
                return WriteOutcome.ResultsTooLarge;
        }
        return WriteOutcome.Applied;
    }

    /// <summary>All keys that the request has owned so far count for each of its sessions, and keys that it replaces are not left out.</summary>
    private WriteOutcome CheckOwner(in RequestReader put)
    {
        if (!SessionTable.TryFindOwner(batch, put.Terms.Owner, out var opened))
            return WriteOutcome.NoOwner;
        (_ownedKeys, _ownedBytes) = (_ownedKeys + 1, _ownedBytes + (ulong)(put.Key.Length + NumberText.KeyDigits));
        return OwnedKeys.HasRoom(batch, opened, _ownedKeys, _ownedBytes) ? WriteOutcome.Applied : WriteOutcome.TooManyOwned;
    }

    /// <summary>
    /// False if the values that are touched have more bytes together than a request may put. A touch takes few bytes in a request and a record, and all of the
    /// value when it is applied.
    /// </summary>
    private bool MayTouch(in RequestReader operation)
    {
        if (operation.Code is RequestOperation.Put or RequestOperation.PutOnTerms && operation.Value.Length > LargeValueBytes)
            (_largePuts ??= []).Add(_operations.Length - operation.BytesLeft - operation.Encoded.Length);
        if (operation.Code != RequestOperation.Touch)
            return true;
        _ = batch.TryGetLength(TreeId.Kv, operation.Key, out var bytes);
        for (var index = 0; index < _largePuts?.Count; index++)
        {
            var put = new RequestReader(_operations[_largePuts[index]..]);
            put.MoveNext();
            if (put.Key.SequenceEqual(operation.Key) || put is { Code: RequestOperation.PutOnTerms, Terms.IsNumbered: true })
                bytes = Math.Max(bytes, put.Value.Length);
        }
        _bytesTouched += bytes;
        return _bytesTouched <= KvLimits.WriteBytesMax;
    }

    private readonly WriteOutcome CheckIncrement(in RequestReader increment, int index)
    {
        if (!TryFindNumber(increment.Key, index, out var number))
            return WriteOutcome.NotANumber;
        var sum = unchecked(number + increment.By);
        return (increment.By < 0) == (sum < number) || increment.By == 0 ? WriteOutcome.Applied : WriteOutcome.NumberOverflow;
    }

    /// <summary>The number that an operation will find at a key. The increments before it were checked.</summary>
    private readonly bool TryFindNumber(ReadOnlySpan<byte> key, int index, out long number)
    {
        number = 0;
        var isNumber = !batch.TryGet(TreeId.Kv, key, out var stored) || NumberText.TryRead(KvValue.Read(stored, out _), out number);
        if (index == 0)
            return isNumber;
        var isNumbered = NumberText.TrySplitKey(key, out var prefix, out var own);
        var last = isNumbered ? KeyNumbers.Last(batch, prefix) : 0;
        var reader = new RequestReader(_operations);
        for (var before = 0; before < index && reader.MoveNext(); before++)
        {
            switch (reader.Code)
            {
                case RequestOperation.PutOnTerms when reader.Terms.IsNumbered:
                    if (isNumbered && prefix.SequenceEqual(reader.Key) && ++last == own)
                        isNumber = NumberText.TryRead(reader.Value, out number);
                    break;
                case RequestOperation.Put or RequestOperation.PutOnTerms when key.SequenceEqual(reader.Key):
                    isNumber = NumberText.TryRead(reader.Value, out number);
                    break;
                case RequestOperation.Increment when key.SequenceEqual(reader.Key):
                    number += reader.By;
                    break;
                case RequestOperation.Delete when key.SequenceEqual(reader.Key):
                case RequestOperation.DeleteRange when IsWithin(key, reader.Key, reader.KeyEnd):
                    (isNumber, number) = (true, 0);
                    break;
                default:
                    break;
            }
        }
        return isNumber;
    }

    /// <summary>A bound of the entries of a result.</summary>
    private long BytesOf(in RequestReader operation, int index, long bytesMax) => operation.Code switch
    {
        RequestOperation.PutOnTerms when operation.Terms.IsNumbered => operation.Key.Length + NumberText.KeyDigits + OperationResults.EntryOverheadMax,
        // The key at which a part of the range ends.
        RequestOperation.DeleteRange => KvLimits.KeyBytesMax + OperationResults.EntryOverheadMax,
        RequestOperation.Get => BytesOfKey(operation.Key, index),
        RequestOperation.Scan => BytesOfRange(operation, index, bytesMax),
        _ => 0,
    };

    private readonly long BytesOfKey(ReadOnlySpan<byte> key, int index)
    {
        _ = batch.TryGetLength(TreeId.Kv, key, out var bytes);
        var reader = new RequestReader(_operations);
        for (var before = 0; before < index && reader.MoveNext(); before++)
        {
            if (MayChange(reader, key))
                bytes = Math.Max(bytes, Math.Max(reader.Value.Length, NumberText.ValueBytesMax));
        }
        return key.Length + bytes + OperationResults.EntryOverheadMax;
    }

    private static bool MayChange(in RequestReader operation, ReadOnlySpan<byte> key) => operation.Code switch
    {
        RequestOperation.PutOnTerms when operation.Terms.IsNumbered =>
            key.StartsWith(operation.Key) && key.Length == operation.Key.Length + NumberText.KeyDigits,
        RequestOperation.Put or RequestOperation.PutOnTerms or RequestOperation.Increment => key.SequenceEqual(operation.Key),
        _ => false,
    };

    private long BytesOfRange(in RequestReader scan, int index, long bytesMax)
    {
        var (bytes, more) = (0L, 0);
        var reader = new RequestReader(_operations);
        for (var before = 0; before < index && reader.MoveNext(); before++)
        {
            if (reader.Code == RequestOperation.Delete && IsWithin(reader.Key, scan.Key, scan.KeyEnd))
                more++;
            else if (reader.Code is RequestOperation.Put or RequestOperation.PutOnTerms or RequestOperation.Increment && MayPutInto(reader, scan))
                bytes += reader.Key.Length
                    + NumberText.KeyDigits + (scan.KeysOnly ? 0 : Math.Max(reader.Value.Length, NumberText.ValueBytesMax)) + OperationResults.EntryOverheadMax;
        }
        using var cursor = batch.Cursor(TreeId.Kv, scan.Key, scan.KeyEnd);
        var left = scan.Limit + more;
        for (var found = cursor.MoveNext(); found && left > 0 && bytes <= bytesMax;)
        {
            var key = cursor.Key;
            if (_ranges > 0 && TryFindDeleted(key, index, out var end))
            {
                found = !end.IsEmpty && cursor.Seek(end);
                continue;
            }
            bytes += key.Length + (scan.KeysOnly ? 0 : cursor.ValueLength) + OperationResults.EntryOverheadMax;
            left--;
            found = cursor.MoveNext();
        }
        return _comparisonsLeft < 0 ? long.MaxValue / 2 : bytes;
    }

    // The key of a numbered put is not known here, only what it begins with.
    private static bool MayPutInto(in RequestReader put, in RequestReader scan) =>
        IsWithin(put.Key, scan.Key, scan.KeyEnd)
            || (put.Code == RequestOperation.PutOnTerms && put.Terms.IsNumbered && (scan.KeyEnd.IsEmpty || put.Key.SequenceCompareTo(scan.KeyEnd) < 0));

    /// <summary>Finds a range with the key that is deleted before an operation, and its end.</summary>
    private bool TryFindDeleted(ReadOnlySpan<byte> key, int index, out ReadOnlySpan<byte> end)
    {
        var reader = new RequestReader(_operations);
        for (var before = 0; before < index && _comparisonsLeft >= 0 && reader.MoveNext(); before++)
        {
            _comparisonsLeft--;
            if (reader.Code != RequestOperation.DeleteRange || !IsWithin(key, reader.Key, reader.KeyEnd))
                continue;
            end = reader.KeyEnd;
            return true;
        }
        end = default;
        return false;
    }

    private static bool IsWithin(ReadOnlySpan<byte> key, ReadOnlySpan<byte> from, ReadOnlySpan<byte> to) =>
        key.SequenceCompareTo(from) >= 0 && (to.IsEmpty || key.SequenceCompareTo(to) < 0);
}
