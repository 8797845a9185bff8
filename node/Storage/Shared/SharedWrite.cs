namespace KvCluster.Storage.Shared;

/// <summary>
/// Records of one shard for one place in a segment, on their way to the disk: alone, durable in the segment itself, or in a block of the
/// <see cref="SharedJournal"/> with those of other shards. Its methods are called by one lane of the shared journal, on that lane's executor.
/// </summary>
internal abstract class SharedWrite
{
    /// <summary>Length of the records without what fills them up to whole blocks.</summary>
    public abstract int Bytes { get; }

    /// <summary>
    /// Prepares to be written together with others: <see cref="Entry"/> and <see cref="File"/> are there then. False if it must be written alone.
    /// </summary>
    public abstract bool TryJoin();

    /// <summary>The place in the segment, without its checksum.</summary>
    public abstract SharedEntry Entry { get; }

    /// <summary>The segment's file, as it is written through the page cache.</summary>
    public abstract UnsyncedFile File { get; }

    /// <summary>Copies the records without what fills them up to whole blocks: as many bytes as <see cref="Entry"/> says.</summary>
    public abstract void Pack(Span<byte> destination);

    /// <summary>Writes the records into the segment. They are durable when this returns.</summary>
    /// <exception cref="Files.StorageIoException">An I/O error, or the disk is full.</exception>
    public abstract void WriteDurable();

    /// <summary>Writes the records into the segment through the page cache. A block of the shared journal has them already.</summary>
    /// <exception cref="Files.StorageIoException">An I/O error, or the disk is full.</exception>
    public abstract void WriteCached();

    /// <summary>Reports the records as durable, or why it is not known whether they are. Must not throw.</summary>
    public abstract void End(Exception? failure);

    /// <summary>Called after <see cref="End"/>, when all writes of the block have ended: goes on with what the shard has to do next. Must not throw.</summary>
    public abstract void Continue();
}

/// <summary>What a block of the shared journal says of one write in it: where it belongs, so that a recovery can put it there.</summary>
/// <param name="Name">The path of the segment below the data directory, in UTF-8.</param>
/// <param name="Replica">The replica whose segment it is.</param>
/// <param name="Incarnation">The incarnation of that segment. Together with the offset it never has two contents.</param>
/// <param name="Offset">Where the first record begins in the segment.</param>
/// <param name="Last">The etag of the last record.</param>
/// <param name="Bytes">The length of the records in the block.</param>
/// <param name="Checksum">Their CRC-32C.</param>
internal readonly record struct SharedEntry(
    ReadOnlyMemory<byte> Name, ReplicaId Replica, ulong Incarnation, long Offset, Etag Last, int Bytes, uint Checksum = 0);
