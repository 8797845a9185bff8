using System.Runtime.InteropServices;

namespace KvCluster.Storage.Files;

/// <summary>A file behind a descriptor. See <see cref="IStorageFile"/> for threads and failures.</summary>
internal sealed unsafe class LinuxFile : IStorageFile
{
    private readonly List<(nint Address, nuint Length)> _maps = [];
    private int _descriptor;
    private long _length;

    /// <summary>Owns the descriptor from here on.</summary>
    public LinuxFile(string path, int descriptor, bool isDirect)
    {
        Path = path;
        IsDirect = isDirect;
        _descriptor = descriptor;
        _length = LibC.Seek(descriptor, 0, LibC.SeekEnd);
        if (_length < 0)
            throw LinuxFileSystem.Failure("determine the length of", path, Marshal.GetLastPInvokeError());
    }

    ~LinuxFile() => Close();

    /// <inheritdoc/>
    public string Path { get; }

    /// <inheritdoc/>
    public long Length => Volatile.Read(ref _length);

    /// <inheritdoc/>
    public long AllocatedBytes
    {
        get
        {
            var status = stackalloc byte[LibC.StatusBytes];
            // Where the system lacks the call, the length is the best guess.
            return LibC.Status(_descriptor, "", LibC.StatusOfDescriptor, LibC.StatusBlocks, status) == 0
                ? *(long*)(status + LibC.StatusBlocksOffset) * LibC.StatusBlockBytes
                : Length;
        }
    }

    /// <inheritdoc/>
    public bool IsDirect { get; }

    /// <inheritdoc/>
    public void Resize(long length)
    {
        var before = _length;
        if (length == before)
            return;
        try
        {
            if (length < before)
                ThrowIfFailed("truncate", Finish(() => LibC.Truncate(_descriptor, length)));
            else
                Allocate(before, length);
        }
        finally
        {
            // A call that failed may have happened, in part or as a whole, so the length is read from the system.
            Volatile.Write(ref _length, LibC.Seek(_descriptor, 0, LibC.SeekEnd) is >= 0 and var now ? now : Math.Min(before, length));
        }
    }

    /// <summary>
    /// Grows the file, or leaves it as it was: <c>fallocate</c> keeps what it found before the disk was full, and then that space is missing elsewhere.
    /// </summary>
    private void Allocate(long before, long length)
    {
        var error = Finish(() => LibC.Allocate(_descriptor, 0, before, length - before));
        if (error == 0)
            return;
        // Without fallocate the file gets a hole instead. A full disk then shows at the write and not here.
        if (error == LibC.ErrorNotSupported)
        {
            ThrowIfFailed("extend", Finish(() => LibC.Truncate(_descriptor, length)));
            return;
        }
        // A file system that needs space even for this keeps the longer file.
        if (Finish(() => LibC.Truncate(_descriptor, before)) is not (0 or LibC.ErrorNoSpace or LibC.ErrorQuota) and var other)
            throw LinuxFileSystem.Failure("truncate", Path, other);
        throw LinuxFileSystem.Failure("allocate space for", Path, error);
    }

    /// <inheritdoc/>
    public int Read(Span<byte> destination, long offset)
    {
        var total = 0;
        fixed (byte* memory = destination)
        {
            while (total < destination.Length)
            {
                var count = LibC.Read(_descriptor, memory + total, (nuint)(destination.Length - total), offset + total);
                if (count > 0)
                    total += (int)count;
                else if (count == 0)
                    break;
                else if (Marshal.GetLastPInvokeError() is var error and not LibC.ErrorInterrupted)
                    throw LinuxFileSystem.Failure("read", Path, error);
            }
        }
        return total;
    }

    /// <inheritdoc/>
    public void Write(ReadOnlySpan<byte> source, long offset)
    {
        fixed (byte* memory = source)
        {
            var total = 0;
            while (total < source.Length)
            {
                var count = LibC.Write(_descriptor, memory + total, (nuint)(source.Length - total), offset + total);
                if (count > 0)
                    total += (int)count;
                else if (count == 0)
                    throw new StorageIoException("write", Path, $"no bytes were written at offset {offset + total}");
                else if (Marshal.GetLastPInvokeError() is var error and not LibC.ErrorInterrupted)
                    throw LinuxFileSystem.Failure("write", Path, error);
            }
        }
        if (offset + source.Length > _length)
            Volatile.Write(ref _length, offset + source.Length);
    }

    /// <inheritdoc/>
    public bool TryMakeHole(long offset, long length)
    {
        var error = Finish(() => LibC.Allocate(_descriptor, LibC.AllocatePunchHole | LibC.AllocateKeepSize, offset, length));
        if (error is LibC.ErrorNotSupported or LibC.ErrorNoCall)
            return false;
        // Metadata may need space, too. The hole is then tried again after the next open.
        if (error is not (LibC.ErrorNoSpace or LibC.ErrorQuota))
            ThrowIfFailed("make a hole in", error);
        return true;
    }

    /// <inheritdoc/>
    public bool TryFindHole(long offset, long end, out long holeOffset, out long holeEnd)
    {
        holeOffset = LibC.Seek(_descriptor, offset, LibC.SeekHole);
        holeEnd = end;
        if (holeOffset < 0 || holeOffset >= end)
            return false;
        // An error says that no data follows.
        if (LibC.Seek(_descriptor, holeOffset, LibC.SeekData) is >= 0 and var data)
            holeEnd = Math.Min(data, end);
        return true;
    }

    /// <inheritdoc/>
    /// <remarks>
    /// The kernel reports a failed write-out once per descriptor. An error reported here is not reported by the sync again, so it stops the engine as
    /// well.
    /// </remarks>
    public void BeginWriteOut(long offset, long length)
    {
        if (IsDirect || LibC.SyncRange(_descriptor, offset, length, LibC.SyncRangeWrite) == 0)
            return;
        var error = Marshal.GetLastPInvokeError();
        // If the call is not supported or the device is busy, the sync does all of it.
        if (error is not (LibC.ErrorNoCall or LibC.ErrorNotSupported or LibC.ErrorInvalid or LibC.ErrorInterrupted or LibC.ErrorAgain))
            throw LinuxFileSystem.Failure("write out", Path, error);
    }

    /// <inheritdoc/>
    public void Sync() => ThrowIfFailed("sync", Finish(() => LibC.DataSync(_descriptor)));

    /// <inheritdoc/>
    public byte* Map(long offset, long bytes)
    {
        var address = LibC.Map(null, (nuint)bytes, LibC.ProtectRead, LibC.MapShared, _descriptor, offset);
        if (address == (byte*)-1)
            throw LinuxFileSystem.Failure("map", Path, Marshal.GetLastPInvokeError());
        _maps.Add(((nint)address, (nuint)bytes));
        // Only a hint. A kernel that does not know it reads ahead more than it should.
        _ = LibC.Advise(address, (nuint)bytes, LibC.AdviseRandom);
        return address;
    }

    /// <inheritdoc/>
    public bool TryBeginReadIntoMap(byte* memory, long offset, long bytes) => MapReading.TryBegin(memory, bytes);

    /// <inheritdoc/>
    public bool TryTellInMemory(byte* memory, long offset, long bytes, Span<byte> pages) => MapReading.TryTell(memory, bytes, pages);

    /// <inheritdoc/>
    public bool ReadsAhead => !IsDirect;

    /// <inheritdoc/>
    public void ReadIntoMap(byte* memory, long offset, long bytes, bool isNext) =>
        MapReading.Read(_descriptor, Path, memory, offset, bytes, isNext && ReadsAhead);

    /// <inheritdoc/>
    public void Dispose()
    {
        Close();
        GC.SuppressFinalize(this);
    }

    private void Close()
    {
        foreach (var (address, length) in _maps)
            _ = LibC.Unmap((byte*)address, length);
        _maps.Clear();
        if (_descriptor >= 0)
            _ = LibC.Close(_descriptor);
        _descriptor = -1;
    }

    /// <summary>
    /// Repeats a call that a signal interrupted, and returns its final error, 0 for none. An interrupted sync has lost nothing: the next one writes what
    /// it did not write, and a device error is reported once, by whichever call encounters it.
    /// </summary>
    internal static int Finish(Func<int> call)
    {
        while (call() != 0)
        {
            if (Marshal.GetLastPInvokeError() is var error and not LibC.ErrorInterrupted)
                return error;
        }
        return 0;
    }

    private void ThrowIfFailed(string operation, int error)
    {
        if (error != 0)
            throw LinuxFileSystem.Failure(operation, Path, error);
    }
}
