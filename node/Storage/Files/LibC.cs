using System.Runtime.InteropServices;

namespace KvCluster.Storage.Files;

/// <summary>The C library calls that the engine's disk needs, with Linux's constants.</summary>
internal static unsafe partial class LibC
{
    public const int OpenReadOnly = 0;
    public const int OpenReadWrite = 2;
    public const int OpenCreate = 0x40;
    public const int OpenExclusive = 0x80;
    public const int OpenDataSync = 0x1000;
    public const int OpenCloseOnExec = 0x80000;
    public const int ProtectRead = 1;
    public const int ProtectWrite = 2;
    public const int MapShared = 1;
    public const int MapPrivate = 2;
    public const int MapAnonymous = 0x20;
    public const int AdviseRandom = 1;
    public const int AdviseWillNeed = 3;
    public const int AdviseDontNeed = 4;
    public const int AdviseNoHugePage = 15;

    /// <summary>MADV_POPULATE_READ, since Linux 5.14. Older kernels return <see cref="ErrorInvalid"/>.</summary>
    public const int AdvisePopulateRead = 22;

    /// <summary>MADV_POPULATE_WRITE, likewise.</summary>
    public const int AdvisePopulateWrite = 23;
    public const int SeekEnd = 2;
    public const int SeekData = 3;
    public const int SeekHole = 4;

    /// <summary>AT_EMPTY_PATH: about the descriptor itself.</summary>
    public const int StatusOfDescriptor = 0x1000;

    /// <summary>STATX_BLOCKS.</summary>
    public const uint StatusBlocks = 0x400;

    /// <summary>The size of the result of <see cref="Status"/>, and where in it the number of blocks is; the same for all processors.</summary>
    public const int StatusBytes = 256;
    public const int StatusBlocksOffset = 48;
    public const int StatusBlockBytes = 512;
    public const int AllocateKeepSize = 1;
    public const int AllocatePunchHole = 2;
    public const uint SyncRangeWrite = 2;
    public const int LockExclusive = 2;

    /// <summary>LOCK_NB: the call fails with <see cref="ErrorAgain"/> if another one has the lock.</summary>
    public const int LockOrFail = 4;

    /// <summary>PRIO_PROCESS, which on Linux is a thread.</summary>
    public const int PriorityOfThread = 0;
    public const int ErrorInterrupted = 4;
    public const int ErrorAgain = 11;
    public const int ErrorFault = 14;
    public const int ErrorInvalid = 22;
    public const int ErrorNoSpace = 28;
    public const int ErrorNoCall = 38;
    public const int ErrorNotSupported = 95;
    public const int ErrorQuota = 122;

    /// <summary>EHWPOISON: the memory itself is damaged.</summary>
    public const int ErrorPoisoned = 133;

    /// <summary>O_DIRECT; its value depends on the processor.</summary>
    public static readonly int OpenDirect = RuntimeInformation.ProcessArchitecture is Architecture.Arm64 or Architecture.Arm ? 0x10000 : 0x4000;

    /// <summary>Whether the C library has the calls that other ones than glibc lack or name otherwise.</summary>
    public static bool HasCalls()
    {
        string[] calls = ["pread64", "pwrite64", "mmap64", "lseek64", "ftruncate64", "fallocate64", "sync_file_range", "statx", "statfs64"];
        return NativeLibrary.TryLoad("libc", typeof(LibC).Assembly, null, out var library)
            && Array.TrueForAll(calls, call => NativeLibrary.TryGetExport(library, call, out _));
    }

    /// <summary>More than a <c>struct statfs64</c> has, in numbers of 64 bits.</summary>
    public const int StatisticsLongs = 32;

    [LibraryImport("libc", EntryPoint = "open", SetLastError = true, StringMarshalling = StringMarshalling.Utf8)]
    public static partial int Open(string path, int flags, uint mode);

    /// <summary>An open file's lock, which other opens of it get too, in this process or another one. It goes with the last descriptor.</summary>
    [LibraryImport("libc", EntryPoint = "flock", SetLastError = true)]
    public static partial int Lock(int file, int operation);

    [LibraryImport("libc", EntryPoint = "close", SetLastError = true)]
    public static partial int Close(int file);

    /// <summary>With <see cref="SeekEnd"/> this returns the file's length; the others, since Linux 3.1, find where the next data or hole begins.</summary>
    [LibraryImport("libc", EntryPoint = "lseek64", SetLastError = true)]
    public static partial long Seek(int file, long offset, int whence);

    /// <summary>Linux only.</summary>
    [LibraryImport("libc", EntryPoint = "statx", SetLastError = true, StringMarshalling = StringMarshalling.Utf8)]
    public static partial int Status(int directory, string path, int flags, uint mask, byte* result);

    /// <summary>Linux only. Of the result the first number is the type of the file system; it has <see cref="StatisticsLongs"/> at most.</summary>
    [LibraryImport("libc", EntryPoint = "statfs64", SetLastError = true, StringMarshalling = StringMarshalling.Utf8)]
    public static partial int Statistics(string path, ref long result);

    [LibraryImport("libc", EntryPoint = "pread64", SetLastError = true)]
    public static partial nint Read(int file, byte* buffer, nuint count, long offset);

    [LibraryImport("libc", EntryPoint = "pwrite64", SetLastError = true)]
    public static partial nint Write(int file, byte* buffer, nuint count, long offset);

    /// <summary>Linux only. With <see cref="PriorityOfThread"/> and 0 it sets that of the thread that calls.</summary>
    [LibraryImport("libc", EntryPoint = "setpriority", SetLastError = true)]
    public static partial int SetPriority(int kind, int id, int nice);

    [LibraryImport("libc", EntryPoint = "fdatasync", SetLastError = true)]
    public static partial int DataSync(int file);

    /// <summary>Linux only. With <see cref="SyncRangeWrite"/> it waits only if the device's queue is full.</summary>
    [LibraryImport("libc", EntryPoint = "sync_file_range", SetLastError = true)]
    public static partial int SyncRange(int file, long offset, long length, uint flags);

    [LibraryImport("libc", EntryPoint = "fsync", SetLastError = true)]
    public static partial int Sync(int file);

    [LibraryImport("libc", EntryPoint = "fallocate64", SetLastError = true)]
    public static partial int Allocate(int file, int mode, long offset, long length);

    /// <summary>With FICLONE the argument is the descriptor of the file to share blocks with.</summary>
    [LibraryImport("libc", EntryPoint = "ioctl", SetLastError = true)]
    public static partial int Control(int file, nuint request, nint argument);

    [LibraryImport("libc", EntryPoint = "ftruncate64", SetLastError = true)]
    public static partial int Truncate(int file, long length);

    [LibraryImport("libc", EntryPoint = "mmap64", SetLastError = true)]
    public static partial byte* Map(byte* address, nuint length, int protection, int flags, int file, long offset);

    [LibraryImport("libc", EntryPoint = "munmap", SetLastError = true)]
    public static partial int Unmap(byte* address, nuint length);

    /// <summary>Sets one byte for each page of the system: bit 0 says whether it is in memory.</summary>
    [LibraryImport("libc", EntryPoint = "mincore", SetLastError = true)]
    public static partial int InMemory(byte* address, nuint length, byte* pages);

    [LibraryImport("libc", EntryPoint = "madvise", SetLastError = true)]
    public static partial int Advise(byte* address, nuint length, int advice);
}
