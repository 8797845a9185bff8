using KvCluster.Storage.Files;

namespace KvCluster.Node.Runtime;

/// <summary>Reserves a directory for one process: the file LOCK in it is held open and locked until disposed or the process ends.</summary>
internal sealed class DirectoryLock : IDisposable
{
    /// <summary>EWOULDBLOCK of flock. Other errors come from the disk or the mount.</summary>
    private static readonly int WouldBlock = OperatingSystem.IsMacOS() ? 35 : OperatingSystem.IsWindows() ? unchecked((int)0x80070020) : 11;

    private readonly FileStream _file;

    private DirectoryLock(FileStream file) => _file = file;

    /// <exception cref="DirectoryInUseException">Another process, or another object of this process, holds it.</exception>
    public static DirectoryLock Take(string directory) => Take(directory, FileMode.OpenOrCreate, FileAccess.ReadWrite);

    /// <summary>Reserves it if a process has ever used it; otherwise null. Changes nothing, also on a read-only file system.</summary>
    /// <inheritdoc cref="Take(string)" path="/exception"/>
    public static DirectoryLock? TakeIfUsed(string directory) => File.Exists(PathIn(directory)) ? Take(directory, FileMode.Open, FileAccess.Read) : null;

    private static string PathIn(string directory) => Path.Combine(directory, "LOCK");

    private static DirectoryLock Take(string directory, FileMode mode, FileAccess access)
    {
        try
        {
            return new DirectoryLock(new FileStream(PathIn(directory), mode, access, FileShare.None));
        }
        catch (IOException failure) when (failure.HResult == WouldBlock)
        {
            throw new DirectoryInUseException(directory, failure);
        }
    }

    public void Dispose() => _file.Dispose();
}

/// <summary>A directory is used by another process.</summary>
internal sealed class DirectoryInUseException(string directory, Exception inner)
    : IOException($"The directory '{directory}' is in use by another process.", inner);

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
