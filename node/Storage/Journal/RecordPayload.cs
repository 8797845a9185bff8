using System.Buffers;
using System.Buffers.Binary;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Journal;

/// <summary>The operations of a body, decompressed if they are compressed (FORMAT.md, "Body"). One thread; to be disposed of.</summary>
internal ref struct RecordPayload
{
    /// <summary>Bytes before a compressed block: the length of the operations.</summary>
    private const int LengthBytes = sizeof(int);

    /// <summary>A record takes whole blocks of the journal, so compression pays if it saves at least one of them.</summary>
    private const int BytesSavedMin = RecordEnvelope.BlockBytes;

    /// <summary>Of many operations one of some samples has to become shorter by this part.</summary>
    private const int SavedPart = 16;

    private byte[]? _rented;

    /// <summary>Opens the payload of an intact body.</summary>
    /// <exception cref="UnreadableRecordException">The payload is not compressed although the body's flags say so.</exception>
    public RecordPayload(ReadOnlySpan<byte> body)
    {
        var stored = body[RecordBody.Payload(body)];
        if ((RecordBody.Flags(body) & RecordFlags.Lz4) == 0)
        {
            Operations = stored;
            return;
        }
        var length = stored.Length < LengthBytes ? -1 : BinaryPrimitives.ReadInt32LittleEndian(stored);
        if (length is < 0 or > RecordBody.BytesMax)
            throw new UnreadableRecordException("The length of a record's compressed payload is out of range.");
        _rented = ArrayPool<byte>.Shared.Rent(length);
        if (!Lz4.TryDecompress(stored[LengthBytes..], _rented.AsSpan(0, length)))
            throw new UnreadableRecordException("A record's compressed payload is not an LZ4 block of its length.");
        Operations = _rented.AsSpan(0, length);
    }

    /// <summary>The encoded operations (see <c>OperationReader</c>). Not to be used after the end.</summary>
    public ReadOnlySpan<byte> Operations { get; private set; }

    /// <summary>Whether so many operations can be compressed by as much as pays.</summary>
    public static bool MayPay(ReadOnlySpan<byte> operations) => operations.Length > LengthBytes + BytesSavedMin;

    /// <summary>
    /// Compresses operations into a buffer of the same length, if that saves a block of the journal, and of many operations if one of some samples becomes
    /// shorter by a sixteenth. It takes about a millisecond for 1 MiB.
    /// </summary>
    /// <returns>Length of the stored payload; 0 if it does not pay.</returns>
    public static int Compress(ReadOnlySpan<byte> operations, Span<byte> stored)
    {
        if (!MayPay(operations) || !Lz4.MaySave(operations, SavedPart, stored))
            return 0;
        var block = Lz4.Compress(operations, stored.Slice(LengthBytes, operations.Length - LengthBytes - BytesSavedMin));
        BinaryPrimitives.WriteInt32LittleEndian(stored, operations.Length);
        return block == 0 ? 0 : LengthBytes + block;
    }

    /// <summary>Returns the memory.</summary>
    public void Dispose()
    {
        if (_rented is { } rented)
            ArrayPool<byte>.Shared.Return(rented);
        _rented = null;
        Operations = default;
    }
}
