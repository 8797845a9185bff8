using KvCluster.Storage.Files;

namespace KvCluster.Disk;

/// <summary>An open file of the <see cref="SimulatedDisk"/>.</summary>
internal sealed unsafe class SimulatedFile(SimulatedDisk disk, string path, SimulatedNode node, bool dataSync, bool isDirect) : IStorageFile
{
    private readonly List<nint> _maps = [];
    private bool _isClosed;

    /// <inheritdoc/>
    public string Path { get; } = path;

    /// <inheritdoc/>
    public long Length => Node.Content.Length;

    /// <inheritdoc/>
    public long AllocatedBytes => Node.AllocatedBytes;

    /// <inheritdoc/>
    public bool IsDirect { get; } = isDirect;

    private SimulatedNode Node => _isClosed ? throw new ObjectDisposedException(Path) : node;

    /// <inheritdoc/>
    public void Resize(long length) => disk.Resize(Node, Path, length);

    /// <inheritdoc/>
    public int Read(Span<byte> destination, long offset)
    {
        CheckAligned("Read", destination, offset);
        return disk.Read(Node, Path, destination, offset);
    }

    /// <inheritdoc/>
    /// <remarks>The mapping shows the content anyway.</remarks>
    public bool TryBeginReadIntoMap(byte* memory, long offset, long bytes) => disk.BeginsRead?.Invoke(offset, bytes) ?? false;

    /// <inheritdoc/>
    public bool TryTellInMemory(byte* memory, long offset, long bytes, Span<byte> pages)
    {
        if (disk.IsInMemory is not { } isInMemory)
            return false;
        for (var page = 0; page * (long)Environment.SystemPageSize < bytes; page++)
            pages[page] = isInMemory(offset + (page * (long)Environment.SystemPageSize)) ? (byte)1 : (byte)0;
        return true;
    }

    /// <inheritdoc/>
    public bool ReadsAhead => disk.ReadsAhead;

    /// <inheritdoc/>
    public void ReadIntoMap(byte* memory, long offset, long bytes, bool isNext)
    {
        disk.ReadIntoMap(Node, Path, offset, bytes);
        if (isNext)
            disk.ReadsNext?.Invoke(offset);
    }

    /// <inheritdoc/>
    public void Write(ReadOnlySpan<byte> source, long offset)
    {
        CheckAligned("Write", source, offset);
        disk.Write(Node, Path, source, offset, dataSync, isCached: !IsDirect);
    }

    /// <inheritdoc/>
    public void Sync() => disk.Sync(Node, Path);

    /// <inheritdoc/>
    public bool TryMakeHole(long offset, long length) => disk.TryMakeHole(Node, Path, offset, length);

    /// <inheritdoc/>
    public bool TryFindHole(long offset, long end, out long holeOffset, out long holeEnd) => Node.TryFindHole(offset, end, out holeOffset, out holeEnd);

    /// <inheritdoc/>
    public void BeginWriteOut(long offset, long length)
    {
        // The system decides when to write. After a crash unsynced data may or may not be on the disk.
        if (offset < 0 || length <= 0 || offset + length > Length)
            throw new ArgumentOutOfRangeException(nameof(length), $"{length} bytes at {offset} of a file of {Length} are to be written out.");
        disk.CheckWriteOut(Node, Path);
    }

    /// <inheritdoc/>
    public byte* Map(long offset, long bytes)
    {
        disk.CheckMap(Path);
        var address = Node.Map(offset, bytes);
        _maps.Add((nint)address);
        return address;
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        if (_isClosed)
            return;
        Close();
        disk.Closed(this);
    }

    private void CheckAligned(string operation, ReadOnlySpan<byte> memory, long offset)
    {
        if (!IsDirect)
            return;
        fixed (byte* start = memory)
        {
            if (((nint)start | offset | (long)memory.Length) % AlignedBuffer.Alignment != 0)
                throw SimulatedDisk.NotAligned(operation, Path);
        }
    }

    /// <summary>The handle is closed, by its owner or because the machine stopped.</summary>
    internal void Close()
    {
        _isClosed = true;
        foreach (var map in _maps)
            node.Unmap((byte*)map);
        _maps.Clear();
    }
}
