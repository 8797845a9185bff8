// The disk itself. Calls that are banned in the core are made here.
#pragma warning disable RS0030

using System.Globalization;

namespace KvCluster.Storage.Files;

/// <summary>
/// Reserves a directory for one process: the file LOCK in it is held open and locked until disposed or the process ends, however it ends. The file contains
/// the holder, for the message that others get.
/// </summary>
internal sealed class DirectoryLock : IDisposable
{
    /// <summary>The name of the file.</summary>
    public const string FileName = "LOCK";

    private const int HolderBytesMax = 256;

    /// <summary>EWOULDBLOCK of flock. Other errors come from the disk or the mount.</summary>
    private static readonly int WouldBlock = OperatingSystem.IsMacOS() ? 35 : OperatingSystem.IsWindows() ? unchecked((int)0x80070020) : 11;

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
        try
        {
            return new DirectoryLock(new FileStream(PathIn(directory), mode, access, FileShare.None));
        }
        catch (IOException failure) when (failure.HResult == WouldBlock)
        {
            throw new DirectoryInUseException(directory, ReadHolder(directory), failure);
        }
    }

    /// <inheritdoc/>
    public void Dispose() => _file.Dispose();

    private void NameHolder()
    {
        var program = Path.GetFileName(Environment.ProcessPath) ?? "unknown";
        var holder = System.Text.Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"{Environment.ProcessId} ({program}) on {Environment.MachineName}"));
        try
        {
            _file.SetLength(0);
            _file.Write(holder.AsSpan(0, Math.Min(holder.Length, HolderBytesMax)));
            _file.Flush();
        }
        catch (IOException)
        {
            // Only the message of others lacks the name then: the lock is held, and a full disk must not keep a store closed.
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
/// <param name="inner">The exception of the runtime.</param>
internal sealed class DirectoryInUseException(string directory, string? holder, Exception inner)
    : IOException($"The directory '{directory}' is in use by {(holder is null ? "another process" : $"process {holder}")}.", inner)
{
    /// <summary>The holder's process id, program and machine; null if unknown.</summary>
    public string? Holder { get; } = holder;
}

/// <summary>Creates directories that survive a power failure.</summary>
internal static class DurableDirectory
{
    /// <summary>Creates a directory and its missing parents, and makes each one's name durable. Does nothing if it exists.</summary>
    public static void Create(string path)
    {
        path = Path.GetFullPath(path);
        if (Directory.Exists(path) || Path.GetDirectoryName(path) is not { } parent)
            return;
        Create(parent);
        LocalDisk.Instance.CreateDirectory(path);
        LocalDisk.Instance.SyncDirectory(parent);
    }
}
