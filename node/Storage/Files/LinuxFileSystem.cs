// The disk itself. Calls that are banned in the core, or that only Linux has (LocalDisk.Require), are made here.
#pragma warning disable RS0030, CA1416

using System.Runtime.InteropServices;

namespace KvCluster.Storage.Files;

/// <summary>
/// The disk on Linux: names through the runtime, and through the C library direct and data-sync writes, allocation, mappings, directory syncs. What is created
/// can be read by this process's user only, as it has the data of all callers. Stateless; any thread.
/// </summary>
internal sealed class LinuxFileSystem : IFileSystem
{
    /// <summary>The only instance of the process.</summary>
    public static readonly LinuxFileSystem Instance = new();

    /// <summary>The rights to a new file: 0600.</summary>
    internal const UnixFileMode FileRights = UnixFileMode.UserRead | UnixFileMode.UserWrite;

    private const UnixFileMode DirectoryRights = FileRights | UnixFileMode.UserExecute;

    private LinuxFileSystem()
    {
    }

    /// <inheritdoc/>
    public IStorageFile Open(string path, StorageFileOptions options)
    {
        var flags = (options.Mode == StorageFileMode.ReadOnly ? LibC.OpenReadOnly : LibC.OpenReadWrite) | LibC.OpenCloseOnExec;
        if (options.Mode == StorageFileMode.CreateNew)
            flags |= LibC.OpenCreate | LibC.OpenExclusive;
        if (options.DataSync)
            flags |= LibC.OpenDataSync;
        if (options.Direct && TryOpenDirect(path, flags, out var direct))
            return direct;
        // A refused direct open may have created the file already. The buffered open must accept that.
        if (options.Direct)
            flags &= ~LibC.OpenExclusive;
        return new LinuxFile(path, OpenOrThrow(path, flags), isDirect: false);
    }

    /// <inheritdoc/>
    public bool FileExists(string path) => File.Exists(path);

    /// <inheritdoc/>
    public bool DirectoryExists(string path) => Directory.Exists(path);

    /// <inheritdoc/>
    public IReadOnlyList<string> List(string directory) => Attempt("list", directory, () =>
    {
        var names = Directory.GetFileSystemEntries(directory).Select(path => Path.GetFileName(path)).ToArray();
        Array.Sort(names, StringComparer.Ordinal);
        return names;
    });

    /// <inheritdoc/>
    public void CreateDirectory(string path) => Attempt("create directory", path, () => Directory.CreateDirectory(path, DirectoryRights));

    /// <inheritdoc/>
    public void Delete(string path) => Attempt("delete", path, () =>
    {
        File.Delete(path);
        return true;
    });

    /// <inheritdoc/>
    public void DeleteDirectory(string path) => Attempt("delete directory", path, () =>
    {
        if (Directory.Exists(path))
            Directory.Delete(path, recursive: true);
        return true;
    });

    /// <inheritdoc/>
    public void Rename(string from, string to) => Attempt("rename", from, () =>
    {
        if (Directory.Exists(from))
            Directory.Move(from, to);
        else
            File.Move(from, to, overwrite: true);
        return true;
    });

    /// <inheritdoc/>
    public long AvailableBytes(string directory) =>
        Attempt("determine the free space of", directory, () => new DriveInfo(Path.GetFullPath(directory)).AvailableFreeSpace);

    /// <inheritdoc/>
    public void SyncDirectory(string path)
    {
        var file = OpenOrThrow(path, LibC.OpenReadOnly | LibC.OpenCloseOnExec);
        var error = LinuxFile.Finish(() => LibC.Sync(file));
        _ = LibC.Close(file);
        if (error != 0)
            throw Failure("sync directory", path, error);
    }

    /// <summary>The exception for an error number of the C library.</summary>
    internal static StorageIoException Failure(string operation, string path, int error, string consequence = "") =>
        new(operation, path, $"{Marshal.GetPInvokeErrorMessage(error)} (errno {error}){consequence}", IsFull(error));

    /// <summary>Opens a file and returns its descriptor.</summary>
    internal static int OpenOrThrow(string path, int flags)
    {
        var file = TryOpen(path, flags, out var error);
        return file >= 0 ? file : throw Failure("open", path, error);
    }

    /// <summary>
    /// The errors of a file system without direct I/O: an older tmpfs and some overlays return them at the open, others at the first transfer.
    /// </summary>
    internal static bool SaysThatNothingIsDirect(int error) => error is LibC.ErrorInvalid or LibC.ErrorNotSupported;

    /// <summary>
    /// False if the file system has no direct I/O. One block is read to find out. If the disk cannot read that block, the file is direct all the same, and
    /// whoever uses the block gets the error. If this error were taken for a refusal, everything would be written through the page cache from then on.
    /// </summary>
    private static unsafe bool TryOpenDirect(string path, int flags, out LinuxFile direct)
    {
        direct = null!;
        var file = TryOpen(path, flags | LibC.OpenDirect, out var error);
        if (file < 0)
            return SaysThatNothingIsDirect(error) ? false : throw Failure("open", path, error);
        using var block = new AlignedBuffer(AlignedBuffer.Alignment);
        fixed (byte* memory = block.Span)
        {
            if (LibC.Read(file, memory, (nuint)block.Length, 0) < 0 && SaysThatNothingIsDirect(Marshal.GetLastPInvokeError()))
            {
                _ = LibC.Close(file);
                return false;
            }
        }
        direct = new LinuxFile(path, file, isDirect: true);
        return true;
    }

    /// <summary>Opens a file, again if a signal interrupted it. A negative result means that it failed with the error.</summary>
    private static int TryOpen(string path, int flags, out int error)
    {
        while (true)
        {
            var file = LibC.Open(path, flags, (uint)FileRights);
            error = file < 0 ? Marshal.GetLastPInvokeError() : 0;
            if (error != LibC.ErrorInterrupted)
                return file;
        }
    }

    private static bool IsFull(int error) => error is LibC.ErrorNoSpace or LibC.ErrorQuota;

    private static T Attempt<T>(string operation, string path, Func<T> action)
    {
        try
        {
            return action();
        }
        catch (Exception failure) when (failure is (IOException or UnauthorizedAccessException) and not StorageIoException)
        {
            throw new StorageIoException(operation, path, failure.Message, failure is IOException && IsFull(failure.HResult), failure);
        }
    }
}
