namespace KvCluster.Storage.Journal;

/// <summary>
/// A record's body whose magic, length and checksum are right, because they were checked here or the body was made here. Nothing that has one checks again.
/// The bytes do not change and may be kept, as long as the index keeps those of a body that was made here (<see cref="JournalEntry.Drop"/>).
/// </summary>
internal readonly struct VerifiedBody
{
    private VerifiedBody(in RecordRef record, ReadOnlyMemory<byte> bytes, BodySlab? slab = null)
    {
        Record = record;
        Bytes = bytes;
        Slab = slab;
    }

    /// <summary>Its header and checksum.</summary>
    public RecordRef Record { get; }

    /// <summary>The whole body.</summary>
    public ReadOnlyMemory<byte> Bytes { get; }

    /// <summary>Has the bytes of a body that was made here; null: they have memory of their own.</summary>
    public BodySlab? Slab { get; }

    /// <summary>Checks a body that came from elsewhere. False if the bytes are not a whole, intact body; nothing of them may then be used.</summary>
    /// <param name="bytes">The bytes, which nobody changes from here on.</param>
    /// <param name="body">The body.</param>
    public static bool TryVerify(ReadOnlyMemory<byte> bytes, out VerifiedBody body)
    {
        var isIntact = RecordBody.TryVerify(bytes.Span, out var record);
        body = isIntact ? new VerifiedBody(record, bytes) : default;
        return isIntact;
    }

    /// <summary>Makes the body that follows <paramref name="previous"/> of memory that has its payload in its place. Nothing of that is copied.</summary>
    /// <param name="memory">The body's memory, which nobody changes from here on.</param>
    /// <param name="slab">What the memory is a part of; null if it is the body's own.</param>
    /// <param name="previous">The record it is chained to.</param>
    /// <param name="flags">Its kind.</param>
    /// <param name="epoch">The epoch it belongs to.</param>
    /// <param name="operationCount">Operations in the payload.</param>
    /// <param name="wallTimeMicroseconds">See <see cref="RecordBody"/>, as for the others.</param>
    /// <param name="shardTimeMicroseconds">The shard time, if it is not in place of the wall time.</param>
    public static VerifiedBody Seal(
        Memory<byte> memory, BodySlab? slab, in RecordRef previous,
        RecordFlags flags, ulong epoch, int operationCount, long wallTimeMicroseconds, long shardTimeMicroseconds)
    {
        RecordBody.Seal(memory.Span, previous, flags, epoch, operationCount, wallTimeMicroseconds, out var record, shardTimeMicroseconds);
        return new VerifiedBody(record, memory, slab);
    }

    /// <summary>The same with a payload that is elsewhere, of which it has a copy.</summary>
    /// <param name="payload">The payload.</param>
    /// <inheritdoc cref="Seal"/>
    public static VerifiedBody Encode(
        in RecordRef previous,
        RecordFlags flags, ulong epoch, int operationCount, long wallTimeMicroseconds, ReadOnlySpan<byte> payload, long shardTimeMicroseconds)
    {
        var bytes = RecordBody.Encode(previous, flags, epoch, operationCount, wallTimeMicroseconds, payload, out var record, shardTimeMicroseconds);
        return new VerifiedBody(record, bytes);
    }
}
