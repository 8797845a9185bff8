namespace KvCluster.Storage.Files;

/// <summary>An open file. One thread writes at a time; reads and the map may run beside it on other threads.</summary>
internal interface IStorageFile : IDisposable
{
    /// <summary>The path it was opened by.</summary>
    string Path { get; }

    /// <summary>Its length in bytes.</summary>
    long Length { get; }

    /// <summary>Whether reads and writes go past the page cache, and so need 4 KiB aligned memory, offset and length.</summary>
    bool IsDirect { get; }

    /// <summary>Grows by allocated zeros, so that a later write into them cannot meet a full disk, or truncates. Durable after <see cref="Sync"/>.</summary>
    void Resize(long length);

    /// <summary>Reads; fewer bytes than asked for only at the end of the file.</summary>
    int Read(Span<byte> destination, long offset);

    /// <summary>Writes all of it or throws; durable when it returns if opened with data sync, otherwise after <see cref="Sync"/>.</summary>
    void Write(ReadOnlySpan<byte> source, long offset);

    /// <summary>Makes what was written durable, with the length needed to read it (<c>fdatasync</c>).</summary>
    void Sync();

    /// <summary>
    /// Has the system begin to write out what was written there, so that <see cref="Sync"/> finds little left to do. Nothing is durable by it.
    /// </summary>
    void BeginWriteOut(long offset, long length);

    /// <summary>
    /// A read-only map of a reserved range that may reach beyond the file: pages beyond <see cref="Length"/> fault. It stays valid
    /// while the file grows and until <see cref="IDisposable.Dispose"/>, which unmaps it.
    /// </summary>
    unsafe byte* Map(long reserveBytes);

    /// <summary>
    /// Reads a part of the file into the memory that the map shows, and fails with a <see cref="StorageIoException"/> where the disk cannot read it: touching
    /// such a page in the map would end the process. After <see cref="Map"/>, within <see cref="Length"/>; any thread, also beside a write.
    /// </summary>
    void ReadIntoMap(long offset, long bytes);
}
