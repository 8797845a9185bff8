// The disk itself. Calls that are banned in the core are made here.
#pragma warning disable RS0030

using System.Runtime.InteropServices;
using Microsoft.Win32.SafeHandles;

namespace KvCluster.Storage.Files;

/// <summary>A file behind the runtime's handle. See <see cref="IStorageFile"/> for threads and failures.</summary>
internal sealed unsafe class PortableFile(string path, SafeFileHandle handle, bool dataSync) : IStorageFile
{
    private readonly List<(nint Address, nuint Length)> _maps = [];
    private long _length = RandomAccess.GetLength(handle);

    /// <inheritdoc/>
    public string Path { get; } = path;

    /// <inheritdoc/>
    public long Length => Volatile.Read(ref _length);

    /// <inheritdoc/>
    /// <remarks>Not known here, and there are no holes.</remarks>
    public long AllocatedBytes => Length;

    /// <inheritdoc/>
    public bool IsDirect => false;

    /// <summary>Converts an exception of the runtime. A full disk is recognized by errno or HRESULT.</summary>
    internal static StorageIoException Failure(string operation, string path, Exception exception)
    {
        const int WindowsDiskFull = unchecked((int)0x80070070), WindowsHandleDiskFull = unchecked((int)0x80070027);
        var full = exception is IOException && exception.HResult is LibC.ErrorNoSpace or LibC.ErrorQuota or WindowsDiskFull or WindowsHandleDiskFull;
        return new StorageIoException(operation, path, exception.Message, full, exception);
    }

    /// <inheritdoc/>
    /// <remarks>The zeros are written, so that they are allocated on every file system.</remarks>
    public void Resize(long length)
    {
        if (length < _length)
            Attempt("truncate", () => RandomAccess.SetLength(handle, length));
        var zeros = new byte[Math.Clamp(length - _length, 0, 1 << 20)];
        while (_length < length)
            Write(zeros.AsSpan(0, (int)Math.Min(zeros.Length, length - _length)), _length);
        Volatile.Write(ref _length, length);
    }

    /// <inheritdoc/>
    public int Read(Span<byte> destination, long offset)
    {
        var total = 0;
        try
        {
            while (total < destination.Length && RandomAccess.Read(handle, destination[total..], offset + total) is > 0 and var count)
                total += count;
        }
        catch (IOException exception)
        {
            throw Failure("read", Path, exception);
        }
        return total;
    }

    /// <inheritdoc/>
    public void Write(ReadOnlySpan<byte> source, long offset)
    {
        try
        {
            RandomAccess.Write(handle, source, offset);
        }
        catch (IOException exception)
        {
            throw Failure("write", Path, exception);
        }
        if (offset + source.Length > _length)
            Volatile.Write(ref _length, offset + source.Length);
        if (dataSync)
            Sync();
    }

    /// <inheritdoc/>
    public void Sync() => Attempt("sync", () => RandomAccess.FlushToDisk(handle));

    /// <inheritdoc/>
    public bool TryMakeHole(long offset, long length) => false;

    /// <inheritdoc/>
    public bool TryFindHole(long offset, long end, out long holeOffset, out long holeEnd)
    {
        holeOffset = holeEnd = end;
        return false;
    }

    /// <inheritdoc/>
    /// <remarks>The runtime has no such call, so the sync does all of it.</remarks>
    public void BeginWriteOut(long offset, long length)
    {
    }

    /// <inheritdoc/>
    /// <exception cref="PlatformNotSupportedException">On Windows, which cannot map beyond a file's end.</exception>
    public byte* Map(long offset, long bytes)
    {
        if (OperatingSystem.IsWindows())
            throw new PlatformNotSupportedException("The data file must be mapped beyond its end, which Windows does not support.");
        var address = LibC.Map(null, (nuint)bytes, LibC.ProtectRead, LibC.MapShared, (int)handle.DangerousGetHandle(), offset);
        if (address == (byte*)-1)
            throw LinuxFileSystem.Failure("map", Path, Marshal.GetLastPInvokeError());
        _maps.Add(((nint)address, (nuint)bytes));
        return address;
    }

    /// <inheritdoc/>
    public bool TryBeginReadIntoMap(byte* memory, long offset, long bytes) => MapReading.TryBegin(memory, bytes);

    /// <inheritdoc/>
    public bool TryTellInMemory(byte* memory, long offset, long bytes, Span<byte> pages) => MapReading.TryTell(memory, bytes, pages);

    /// <inheritdoc/>
    public bool ReadsAhead => true;

    /// <inheritdoc/>
    public void ReadIntoMap(byte* memory, long offset, long bytes, bool isNext) =>
        MapReading.Read((int)handle.DangerousGetHandle(), Path, memory, offset, bytes, isNext);

    /// <inheritdoc/>
    public void Dispose()
    {
        foreach (var (address, length) in _maps)
            _ = LibC.Unmap((byte*)address, length);
        _maps.Clear();
        handle.Dispose();
    }

    private void Attempt(string operation, Action action)
    {
        try
        {
            action();
        }
        catch (IOException exception)
        {
            throw Failure(operation, Path, exception);
        }
    }
}
