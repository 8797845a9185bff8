namespace KvCluster.Storage.Files;

/// <summary>
/// An open file. One thread writes at a time, or several to different places while it <see cref="IsDirect"/> or whoever is told of a failed sync acts for all;
/// other threads may read it and use the mapping concurrently.
/// </summary>
internal interface IStorageFile : IDisposable
{
    /// <summary>The path with which it was opened.</summary>
    string Path { get; }

    /// <summary>Its length in bytes.</summary>
    long Length { get; }

    /// <summary>
    /// Bytes that it takes from the file system. Less than its length if it has holes, and more where the file system keeps some of its own. Any thread.
    /// </summary>
    long AllocatedBytes { get; }

    /// <summary>Whether reads and writes bypass the page cache and therefore need memory, offset and length aligned to 4 KiB.</summary>
    bool IsDirect { get; }

    /// <summary>
    /// Grows the file with allocated zeros, so that a later write into them cannot find the disk full, or truncates it. Durable after <see cref="Sync"/>.
    /// </summary>
    void Resize(long length);

    /// <summary>Reads bytes; fewer than requested only at the end of the file.</summary>
    int Read(Span<byte> destination, long offset);

    /// <summary>Writes all bytes or throws. Durable when it returns if the file was opened with data sync, otherwise after <see cref="Sync"/>.</summary>
    void Write(ReadOnlySpan<byte> source, long offset);

    /// <summary>Makes what was written durable, including the length needed to read it (<c>fdatasync</c>).</summary>
    void Sync();

    /// <summary>
    /// Gives the space of a range back to the file system. The range reads as zeros then, and writing into it may find the disk full. A crash before
    /// <see cref="Sync"/> may undo it. False if the file system cannot do that; nothing is changed then. If the file system needs space for it and has none,
    /// nothing is changed either, and the result is true: the range may be taken for a hole.
    /// </summary>
    bool TryMakeHole(long offset, long length);

    /// <summary>
    /// Finds the first part of a range that takes no space. Space that is allocated and was never written may count as such a part. False if there is none,
    /// or if the file system does not tell.
    /// </summary>
    bool TryFindHole(long offset, long end, out long holeOffset, out long holeEnd);

    /// <summary>Makes the system begin to write out a range, so that <see cref="Sync"/> has little left to do. This makes nothing durable.</summary>
    void BeginWriteOut(long offset, long length);

    /// <summary>
    /// A read-only mapping of a range that may extend beyond the file. Access to pages beyond <see cref="Length"/> faults. It remains valid while the file
    /// grows and until <see cref="IDisposable.Dispose"/>, which unmaps it. Ranges may overlap. One thread at a time.
    /// </summary>
    /// <param name="offset">Where in the file the range begins, a multiple of 4 KiB.</param>
    /// <param name="bytes">Its length.</param>
    unsafe byte* Map(long offset, long bytes);

    /// <summary>
    /// Reads a part of the file into the memory of a mapping. Throws a <see cref="StorageIoException"/> if the disk cannot read it; accessing such a
    /// page through the mapping would crash the process. Within <see cref="Length"/>; any thread, also concurrently with a write.
    /// </summary>
    /// <param name="memory">Where a mapping has that part.</param>
    /// <param name="offset">Where it is in the file.</param>
    /// <param name="bytes">Its length.</param>
    /// <param name="isNext">
    /// The reads before it ended where this one begins. The system then reads ahead by itself if <see cref="ReadsAhead"/> says so.
    /// </param>
    unsafe void ReadIntoMap(byte* memory, long offset, long bytes, bool isNext = false);

    /// <summary>Whether the system reads ahead when reads follow each other.</summary>
    bool ReadsAhead { get; }

    /// <summary>
    /// Makes the system begin to read a part of the file into the memory of a mapping, and does not wait. False if that was not necessary because its
    /// first page is in memory, as far as the system tells; a length of 0 only asks that. Parameters and threads are those of <see cref="ReadIntoMap"/>.
    /// </summary>
    unsafe bool TryBeginReadIntoMap(byte* memory, long offset, long bytes);

    /// <summary>
    /// Asks which pages of the system that a mapping has in a part of it are in memory. False if the system does not tell. Any thread; the part is within
    /// <see cref="Length"/> or was a moment ago.
    /// </summary>
    /// <param name="memory">Where the part begins, at a page of the system.</param>
    /// <param name="offset">Where it begins in the file.</param>
    /// <param name="bytes">Its length.</param>
    /// <param name="pages">Gets a byte for each page of the system, also for the last if it belongs to the part only in part: odd if it is in memory.</param>
    unsafe bool TryTellInMemory(byte* memory, long offset, long bytes, Span<byte> pages);
}

/// <summary>Whether a file must exist or must not.</summary>
internal enum StorageFileMode
{
    /// <summary>The file must exist.</summary>
    OpenExisting,

    /// <summary>The file must not exist; it is created empty.</summary>
    CreateNew,

    /// <summary>The file must exist, and is only read. Works on a read-only file system.</summary>
    ReadOnly,
}

/// <summary>How to open a file.</summary>
/// <param name="Mode">Whether the file must exist.</param>
/// <param name="Direct">Bypass the page cache where the file system supports it (probed at the open); see <see cref="IStorageFile.IsDirect"/>.</param>
/// <param name="DataSync">Each write is durable when it returns.</param>
internal readonly record struct StorageFileOptions(StorageFileMode Mode, bool Direct = false, bool DataSync = false);
