using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Journal;

/// <summary>
/// A record's body whose magic, length and checksum are right, because they were checked here or the body was made here. Nothing that has one checks again.
/// The bytes never change and may be kept.
/// </summary>
internal readonly struct VerifiedBody
{
    private VerifiedBody(in RecordRef record, ReadOnlyMemory<byte> bytes)
    {
        Record = record;
        Bytes = bytes;
    }

    /// <summary>Its header and checksum.</summary>
    public RecordRef Record { get; }

    /// <summary>The whole body.</summary>
    public ReadOnlyMemory<byte> Bytes { get; }

    /// <summary>Checks a body that came from elsewhere. False if the bytes are not a whole, intact body; nothing of them may then be used.</summary>
    /// <param name="bytes">The bytes, which nobody changes from here on.</param>
    /// <param name="body">The body.</param>
    public static bool TryVerify(ReadOnlyMemory<byte> bytes, out VerifiedBody body)
    {
        var isIntact = RecordBody.TryVerify(bytes.Span, out var record);
        body = isIntact ? new VerifiedBody(record, bytes) : default;
        return isIntact;
    }

    /// <summary>Makes the body that follows <paramref name="previous"/>.</summary>
    /// <inheritdoc cref="RecordBody.Encode" path="/param"/>
    public static VerifiedBody Seal(
        in RecordRef previous, RecordFlags flags, ulong epoch, int operationCount, long wallTimeMicroseconds, ReadOnlySpan<byte> payload)
    {
        var bytes = RecordBody.Encode(previous, flags, epoch, operationCount, wallTimeMicroseconds, payload, out var record);
        return new VerifiedBody(record, bytes);
    }
}
