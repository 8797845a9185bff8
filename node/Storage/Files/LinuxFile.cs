using System.Runtime.InteropServices;

namespace KvCluster.Storage.Files;

/// <summary>A file by its descriptor. See <see cref="IStorageFile"/> for threads and failures.</summary>
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
            throw LinuxFileSystem.Failure("Seek", path, Marshal.GetLastPInvokeError());
    }

    ~LinuxFile() => Close();

    /// <inheritdoc/>
    public string Path { get; }

    /// <inheritdoc/>
    public long Length => Volatile.Read(ref _length);

    /// <inheritdoc/>
    public bool IsDirect { get; }

    /// <inheritdoc/>
    public void Resize(long length)
    {
        if (length < _length)
            ThrowIfFailed("Truncate", Finish(() => LibC.Truncate(_descriptor, length)));
        else if (length > _length && Finish(() => LibC.Allocate(_descriptor, 0, _length, length - _length)) is not 0 and var error)
        {
            // Without fallocate a hole takes its place: a full disk then shows at the write instead of here.
            if (error != LibC.ErrorNotSupported)
                throw LinuxFileSystem.Failure("Allocate", Path, error);
            ThrowIfFailed("Extend", Finish(() => LibC.Truncate(_descriptor, length)));
        }
        Volatile.Write(ref _length, length);
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
                    throw LinuxFileSystem.Failure("Read", Path, error);
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
                    throw new StorageIoException("Write", Path, $"wrote nothing at offset {offset + total}");
                else if (Marshal.GetLastPInvokeError() is var error and not LibC.ErrorInterrupted)
                    throw LinuxFileSystem.Failure("Write", Path, error);
            }
        }
        if (offset + source.Length > _length)
            Volatile.Write(ref _length, offset + source.Length);
    }

    /// <inheritdoc/>
    /// <remarks>A failed write-out is told once for each descriptor, so what this call is told the sync is not: it ends the engine as well.</remarks>
    public void BeginWriteOut(long offset, long length)
    {
        if (IsDirect || LibC.SyncRange(_descriptor, offset, length, LibC.SyncRangeWrite) == 0)
            return;
        var error = Marshal.GetLastPInvokeError();
        // Where the call is not known, or the device is busy, the sync does it all.
        if (error is not (LibC.ErrorNoCall or LibC.ErrorNotSupported or LibC.ErrorInvalid or LibC.ErrorInterrupted or LibC.ErrorAgain))
            throw LinuxFileSystem.Failure("Write out", Path, error);
    }

    /// <inheritdoc/>
    public void Sync() => ThrowIfFailed("Sync", Finish(() => LibC.DataSync(_descriptor)));

    /// <inheritdoc/>
    public byte* Map(long reserveBytes)
    {
        var address = LibC.Map(null, (nuint)reserveBytes, LibC.ProtectRead, LibC.MapShared, _descriptor, 0);
        if (address == (byte*)-1)
            throw LinuxFileSystem.Failure("Map", Path, Marshal.GetLastPInvokeError());
        _maps.Add(((nint)address, (nuint)reserveBytes));
        // Only a hint; a kernel without it reads ahead more than it should.
        _ = LibC.Advise(address, (nuint)reserveBytes, LibC.AdviseRandom);
        return address;
    }

    /// <inheritdoc/>
    public void ReadIntoMap(long offset, long bytes) => MapReading.Read(_descriptor, Path, (byte*)_maps[0].Address, offset, bytes);

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
    /// Makes a call again that a signal interrupted, and gives the error that it ends with, 0 for none. An interrupted sync has failed at nothing: what it did not write is written
    /// by the next, and an error of the device is told once, by whichever call meets it.
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
