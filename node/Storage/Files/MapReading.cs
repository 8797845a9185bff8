using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace KvCluster.Storage.Files;

/// <summary>
/// Reads mapped bytes before they are accessed, so that a bad sector is an error number here and not a SIGBUS later, which nothing in this process can
/// catch. Stateless; any thread. While the disk reads, the thread does not block the garbage collector, as it would in a page fault.
/// </summary>
internal static unsafe class MapReading
{
    /// <summary>The kernel may abort a populate for lack of memory or on a signal. After this many attempts the pages are read by calls.</summary>
    private const int AttemptsMax = 4;

    /// <summary>Bytes per read where the kernel cannot populate a mapping. Covers most pages with one read, and fits on the stack.</summary>
    private const int BlockBytes = 16 << 10;

    /// <summary>Makes the kernel read pages of a mapping from its file.</summary>
    /// <param name="file">The descriptor.</param>
    /// <param name="path">The file's path, for errors.</param>
    /// <param name="memory">Where the mapping has them.</param>
    /// <param name="offset">Where they are in the file.</param>
    /// <param name="bytes">Their length.</param>
    /// <param name="isNext">
    /// Read them by a call that takes part in the kernel's own reading ahead. It reads in folios of up to some megabytes, which cost much less than the pages
    /// of 4 KiB that it reads when it is asked for a part of a mapping.
    /// </param>
    /// <exception cref="StorageIoException">The disk cannot read them.</exception>
    public static void Read(int file, string path, byte* memory, long offset, long bytes, bool isNext)
    {
        if (isNext)
        {
            ReadInBlocks(file, path, offset, bytes);
            return;
        }
        var start = StartOf(memory);
        offset -= memory - start;
        var length = memory + bytes - start;
        // In a mapping that is read at random, populating alone reads each 4 KiB by itself, one after the other.
        if (length > Environment.SystemPageSize)
            _ = LibC.Advise(start, (nuint)length, LibC.AdviseWillNeed);
        for (var attempt = 0; attempt < AttemptsMax; attempt++)
        {
            if (LibC.Advise(start, (nuint)length, LibC.AdvisePopulateRead) == 0)
                return;
            var error = Marshal.GetLastPInvokeError();
            if (attempt < AttemptsMax - 1 && error is LibC.ErrorInterrupted or LibC.ErrorAgain)
                continue;
            // Throws the disk's error if there is one. Otherwise the pages are in the cache now.
            ReadInBlocks(file, path, offset, length);
            if (error is not (LibC.ErrorFault or LibC.ErrorPoisoned))
                return;
        }
        throw LinuxFileSystem.Failure("read", path, LibC.ErrorFault);
    }

    /// <summary>Makes the kernel begin to read pages of a mapping, unless the first one is in memory. False in that case. No bytes: only asks.</summary>
    public static bool TryBegin(byte* memory, long bytes)
    {
        var start = StartOf(memory);
        byte isInMemory = 0;
        if (LibC.InMemory(start, (nuint)Environment.SystemPageSize, &isInMemory) == 0 && (isInMemory & 1) != 0)
            return false;
        // An error of this call is ignored. A page that cannot be read is an error when a reader touches it.
        _ = LibC.Advise(start, (nuint)(memory + bytes - start), LibC.AdviseWillNeed);
        return true;
    }

    /// <summary>Asks the kernel which of its pages are in memory, see <see cref="IStorageFile.TryTellInMemory"/>.</summary>
    public static bool TryTell(byte* memory, long bytes, Span<byte> pages)
    {
        fixed (byte* told = pages[..(int)((bytes + Environment.SystemPageSize - 1) / Environment.SystemPageSize)])
            return LibC.InMemory(memory, (nuint)bytes, told) == 0;
    }

    /// <summary>The page of the system with this address.</summary>
    private static byte* StartOf(byte* memory) => (byte*)((nint)memory & ~(Environment.SystemPageSize - 1L));

    // What the kernel has not written is not read, so the buffer need not be cleared for each page of a scan.
    [SkipLocalsInit]
    private static void ReadInBlocks(int file, string path, long offset, long bytes)
    {
        var memory = stackalloc byte[BlockBytes + AlignedBuffer.Alignment];
        // Aligned, as direct I/O requires.
        var block = (byte*)(((nint)memory + AlignedBuffer.Alignment - 1) & ~(AlignedBuffer.Alignment - 1));
        for (var done = 0L; done < bytes;)
        {
            var count = LibC.Read(file, block, (nuint)Math.Min(BlockBytes, bytes - done), offset + done);
            if (count > 0)
                done += count;
            else if (count == 0)
                throw new StorageIoException("read", path, $"the file ends at offset {offset + done}");
            else if (Marshal.GetLastPInvokeError() is var error and not LibC.ErrorInterrupted)
                throw LinuxFileSystem.Failure("read", path, error);
        }
    }
}
