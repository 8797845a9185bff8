using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Node.Api;

/// <summary>The limits of kv.proto's header that a request is held to while it is read. Null: it keeps them.</summary>
internal static class RequestRules
{
    // What an operation or a condition takes besides its key and value, at most.
    private const int OverheadBytes = 32;

    public static ApiError? CheckKey(ReadOnlySpan<byte> key) =>
        key.IsEmpty ? ApiErrors.KeyEmpty : key.Length > WriteRequest.KeyBytesMax ? ApiErrors.KeyTooLong : null;

    public static ApiError? CheckEntry(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) =>
        CheckKey(key) ?? (value.Length > WriteRequest.ValueBytesMax ? ApiErrors.ValueTooLarge : null);

    /// <summary>Whether one more operation or condition goes into a write.</summary>
    public static ApiError? CheckRoom(WriteRequest write, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) =>
        write.Bytes + key.Length + value.Length + OverheadBytes <= WriteRequest.BytesMax ? null : ApiErrors.WriteTooLarge;
}
