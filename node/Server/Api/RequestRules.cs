using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Node.Api;

/// <summary>The limits in kv.proto's header that are checked while a request is read. Null if the request respects them.</summary>
internal static class RequestRules
{
    // Upper bound of the size of an operation or a condition besides its key and value.
    private const int OverheadBytes = 32;

    public static ApiError? CheckKey(ReadOnlySpan<byte> key) =>
        key.IsEmpty ? ApiErrors.KeyEmpty : key.Length > KvLimits.KeyBytesMax ? ApiErrors.KeyTooLong : null;

    public static ApiError? CheckEntry(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) =>
        CheckKey(key) ?? (value.Length > KvLimits.ValueBytesMax ? ApiErrors.ValueTooLarge : null);

    /// <summary>Whether one more operation or condition fits into a write.</summary>
    public static ApiError? CheckRoom(WriteRequest write, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) =>
        write.Bytes + key.Length + value.Length + OverheadBytes <= KvLimits.WriteBytesMax ? null : ApiErrors.WriteTooLarge;
}
