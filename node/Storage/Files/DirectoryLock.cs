// The disk itself. Calls that are banned in the core, or that only Linux has (LocalDisk.Require), are made here.
#pragma warning disable RS0030, CA1416

using System.Globalization;

namespace KvCluster.Storage.Files;

/// <summary>
/// Reserves a directory for one process: the file LOCK in it is held open and locked until disposed or the process ends, however it ends. The file contains
/// the holder, for the message that others get.
/// </summary>
/// <remarks>
/// The lock is <c>flock</c>, as earlier versions had it through the runtime. The runtime locks files by itself when it opens them, but not where that is
/// switched off (<c>DOTNET_SYSTEM_IO_DISABLEFILELOCKING</c>), and takes any error but one for a lock. So the call is made here again, which changes nothing
/// where the lock is held.
/// </remarks>
internal sealed class DirectoryLock : IDisposable
{
    /// <summary>The name of the file.</summary>
    public const string FileName = "LOCK";

    private const int HolderBytesMax = 256;

    private readonly FileStream _file;

    private DirectoryLock(FileStream file) => _file = file;

    /// <exception cref="DirectoryInUseException">Another process, or another object of this process, holds it.</exception>
    public static DirectoryLock Take(string directory)
    {
        var held = Take(directory, FileMode.OpenOrCreate, FileAccess.ReadWrite);
        held.NameHolder();
        return held;
    }

    /// <summary>Reserves it if a process has ever used it; otherwise null. Changes nothing, also on a read-only file system.</summary>
    /// <inheritdoc cref="Take(string)" path="/exception"/>
    public static DirectoryLock? TakeIfUsed(string directory) => File.Exists(PathIn(directory)) ? Take(directory, FileMode.Open, FileAccess.Read) : null;

    private static string PathIn(string directory) => Path.Combine(directory, FileName);

    private static DirectoryLock Take(string directory, FileMode mode, FileAccess access)
    {
        LocalDisk.Require();
        var path = PathIn(directory);
        var options = new FileStreamOptions { Mode = mode, Access = access, Share = FileShare.None };
        if (mode != FileMode.Open)
            options.UnixCreateMode = LinuxFileSystem.FileRights;
        FileStream file;
        try
        {
            file = new FileStream(path, options);
        }
        catch (IOException failure) when (failure.HResult == LibC.ErrorAgain)
        {
            throw new DirectoryInUseException(directory, ReadHolder(directory), failure);
        }
        var handle = file.SafeFileHandle;
        var error = LinuxFile.Finish(() => LibC.Lock((int)handle.DangerousGetHandle(), LibC.LockExclusive | LibC.LockOrFail));
        if (error == 0)
            return new DirectoryLock(file);
        file.Dispose();
        throw error == LibC.ErrorAgain
            ? new DirectoryInUseException(directory, ReadHolder(directory), inner: null)
            : LinuxFileSystem.Failure(
                "lock", path, error, "; it was not opened, because two processes could use it at once. Put the directory on a file system with flock");
    }

    /// <inheritdoc/>
    public void Dispose() => _file.Dispose();

    private void NameHolder()
    {
        var program = Path.GetFileName(Environment.ProcessPath) ?? "unknown";
        var holder = System.Text.Encoding.UTF8.GetBytes(
            string.Create(CultureInfo.InvariantCulture, $"{Environment.ProcessId} ({program}) on {Environment.MachineName}"));
        try
        {
            _file.SetLength(0);
            _file.Write(holder.AsSpan(0, Math.Min(holder.Length, HolderBytesMax)));
            _file.Flush();
        }
        catch (IOException)
        {
            // The lock is held, and a full disk must not keep a store closed. Only the message to other processes lacks the holder's name.
        }
    }

    /// <summary>The holder as it has named itself; null where a locked file cannot be read. Through the engine's own calls, which ask for no lock.</summary>
    private static string? ReadHolder(string directory)
    {
        try
        {
            using var file = LocalDisk.Instance.Open(PathIn(directory), new StorageFileOptions(StorageFileMode.ReadOnly));
            var bytes = new byte[HolderBytesMax];
            var count = file.Read(bytes, 0);
            return count == 0 ? null : System.Text.Encoding.UTF8.GetString(bytes.AsSpan(0, count));
        }
        catch (StorageIoException)
        {
            return null;
        }
    }
}

/// <summary>A directory is used by another process, or by another object of this one. Nothing was changed.</summary>
/// <param name="directory">The directory.</param>
/// <param name="holder">The holder's process id, program and machine; null if unknown.</param>
/// <param name="inner">The exception of the runtime; null if there is none.</param>
internal sealed class DirectoryInUseException(string directory, string? holder, Exception? inner)
    : IOException($"The directory '{directory}' is in use by {(holder is null ? "another process" : $"process {holder}")}.", inner)
{
    /// <summary>The holder's process id, program and machine; null if unknown.</summary>
    public string? Holder { get; } = holder;
}

/// <summary>Creates directories that survive a power failure.</summary>
internal static class DurableDirectory
{
    /// <summary>
    /// Creates a directory and its missing parents, which only this process's user can read, and makes each one's name durable. Does nothing if it exists.
    /// </summary>
    public static void Create(string path)
    {
        LocalDisk.Require();
        path = Path.GetFullPath(path);
        if (Directory.Exists(path) || Path.GetDirectoryName(path) is not { } parent)
            return;
        Create(parent);
        LocalDisk.Instance.CreateDirectory(path);
        LocalDisk.Instance.SyncDirectory(parent);
    }
}
