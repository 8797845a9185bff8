using KvCluster.Node.Api.Errors;
using KvCluster.Node.Hosting;
using KvCluster.Storage.Encoding;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Node.Api.Calls;

/// <summary>The limits in kv.proto's header that are checked while a request is read. Null if the request respects them.</summary>
internal static class RequestRules
{
    // Upper bound of the size of an operation or a condition besides its key and value.
    private const int OverheadBytes = 64;

    public static ApiError? CheckKey(ReadOnlySpan<byte> key) =>
        key.IsEmpty ? ApiErrors.KeyEmpty : key.Length > KvLimits.KeyBytesMax ? ApiErrors.KeyTooLong : null;

    /// <summary>Whether the bounds of a range are short enough. They may be empty.</summary>
    public static ApiError? CheckBounds(ReadOnlySpan<byte> start, ReadOnlySpan<byte> end, ReadOnlySpan<byte> prefix = default) =>
        prefix.Length > KvLimits.KeyBytesMax ? ApiErrors.KeyTooLong
        : Math.Max(start.Length, end.Length) > KvLimits.BoundBytesMax ? ApiErrors.BoundTooLong
        : null;

    public static ApiError? CheckEntry(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) =>
        CheckKey(key) ?? (value.Length > KvLimits.ValueBytesMax ? ApiErrors.ValueTooLarge : null);

    public static ApiError? CheckMember(ReadOnlySpan<byte> member) =>
        member.IsEmpty ? ApiErrors.MemberEmpty : member.Length > KvLimits.MemberBytesMax ? ApiErrors.MemberTooLong : null;

    /// <summary>Whether a time to live is valid. Null, which means none, is.</summary>
    public static ApiError? CheckTtl(ulong? ttlMs) => ttlMs is 0 or > KvLimits.TtlMillisecondsMax ? ApiErrors.TtlInvalid : null;

    /// <summary>Whether a range lies in a shard. An empty end is the end of the shard.</summary>
    /// <param name="from">The first key; no longer than a key afterwards.</param>
    /// <param name="to">The end, no longer than a key either; empty if the shard has the last key.</param>
    public static ApiError? CheckRange(HostedShard shard, ShardLookup lookup, ref ReadOnlySpan<byte> from, ReadOnlySpan<byte> end, out ReadOnlySpan<byte> to)
    {
        var endOfShard = shard.Route.End.Span;
        to = end.IsEmpty ? endOfShard : end;
        if (!end.IsEmpty && from.SequenceCompareTo(end) > 0)
            return ApiErrors.BadRequest("A range ends before it begins. Nothing was applied.");
        if (!shard.Owns(from))
            return ApiErrors.ShardsDiffer(shard, lookup.RouteOf(from));
        if (!endOfShard.IsEmpty && to.SequenceCompareTo(endOfShard) > 0)
            return ApiErrors.ShardsDiffer(shard, lookup.RouteOf(endOfShard));
        if (Math.Max(from.Length, to.Length) > KvLimits.KeyBytesMax)
        {
            var (first, behind) = KeyBounds.Shortened(from, to);
            from = first;
            to = behind;
        }
        return null;
    }

    /// <summary>Whether all keys that get a number under a prefix lie in a shard.</summary>
    public static ApiError? CheckNumbered(HostedShard shard, ShardLookup lookup, ReadOnlySpan<byte> prefix)
    {
        if (prefix.Length > KvLimits.KeyBytesMax - NumberText.KeyDigits)
            return ApiErrors.KeyTooLong;
        // The keys from the least to the greatest number must be in the shard. No key beyond them is made, so a bound between two shards may follow.
        Span<byte> key = stackalloc byte[KvLimits.KeyBytesMax];
        foreach (var number in (ReadOnlySpan<ulong>)[0, ulong.MaxValue])
        {
            var numbered = key[..NumberText.WriteKey(key, prefix, number)];
            if (!shard.Owns(numbered))
                return ApiErrors.SequenceDivided(shard, lookup.RouteOf(numbered));
        }
        return null;
    }

    /// <summary>Whether one more operation or condition fits into a write.</summary>
    public static ApiError? CheckRoom(WriteRequest write, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) =>
        write.Bytes + key.Length + value.Length + OverheadBytes <= KvLimits.WriteBytesMax ? null : ApiErrors.WriteTooLarge;
}
