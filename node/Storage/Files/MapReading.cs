using System.Runtime.InteropServices;

namespace KvCluster.Storage.Files;

/// <summary>
/// Reads mapped bytes before they are touched, so that a bad sector is an error number here and not a SIGBUS there, which nothing in this process can
/// catch. Stateless; any thread. The thread is not held up for the garbage collector while the disk reads, as it would be in a page fault.
/// </summary>
internal static unsafe class MapReading
{
    /// <summary>A kernel may give up one populate for want of memory or by a signal. More often than this it is as if it could not.</summary>
    private const int AttemptsMax = 4;

    /// <summary>Bytes read at once where the kernel cannot populate a map: most pages in one, and they fit a stack.</summary>
    private const int BlockBytes = 16 << 10;

    /// <summary>Has the pages of a map read from its file.</summary>
    /// <exception cref="StorageIoException">The disk cannot read them.</exception>
    public static void Read(int file, string path, byte* map, long offset, long bytes)
    {
        var start = offset & ~(Environment.SystemPageSize - 1L);
        var length = offset + bytes - start;
        for (var attempt = 0; attempt < AttemptsMax; attempt++)
        {
            if (LibC.Advise(map + start, (nuint)length, LibC.AdvisePopulateRead) == 0)
                return;
            var error = Marshal.GetLastPInvokeError();
            if (error is LibC.ErrorInterrupted or LibC.ErrorAgain)
                continue;
            // Says by its own error what the disk has; where that is nothing, the pages are in the cache now.
            ReadInBlocks(file, path, start, length);
            if (error is not (LibC.ErrorFault or LibC.ErrorPoisoned))
                return;
        }
        throw LinuxFileSystem.Failure("Read", path, LibC.ErrorFault);
    }

    private static void ReadInBlocks(int file, string path, long offset, long bytes)
    {
        var memory = stackalloc byte[BlockBytes + AlignedBuffer.Alignment];
        // As direct I/O needs it.
        var block = (byte*)(((nint)memory + AlignedBuffer.Alignment - 1) & ~(AlignedBuffer.Alignment - 1));
        for (var done = 0L; done < bytes;)
        {
            var count = LibC.Read(file, block, (nuint)Math.Min(BlockBytes, bytes - done), offset + done);
            if (count > 0)
                done += count;
            else if (count == 0)
                throw new StorageIoException("Read", path, $"the file ends at offset {offset + done}");
            else if (Marshal.GetLastPInvokeError() is var error and not LibC.ErrorInterrupted)
                throw LinuxFileSystem.Failure("Read", path, error);
        }
    }
}
