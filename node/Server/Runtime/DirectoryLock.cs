using KvCluster.Storage.Files;

namespace KvCluster.Node.Runtime;

/// <summary>Keeps a folder to one process: the file LOCK in it, held open and locked until disposed or the process ends.</summary>
internal sealed class DirectoryLock : IDisposable
{
    /// <summary>EWOULDBLOCK, of flock; other failures are the disk's, or the mount's.</summary>
    private static readonly int WouldBlock = OperatingSystem.IsMacOS() ? 35 : OperatingSystem.IsWindows() ? unchecked((int)0x80070020) : 11;

    private readonly FileStream _file;

    private DirectoryLock(FileStream file) => _file = file;

    /// <exception cref="DirectoryInUseException">Another process, or another object of this one, holds it.</exception>
    public static DirectoryLock Take(string directory)
    {
        var path = Path.Combine(directory, "LOCK");
        try
        {
            return new DirectoryLock(new FileStream(path, FileMode.OpenOrCreate, FileAccess.ReadWrite, FileShare.None));
        }
        catch (IOException failure) when (failure.HResult == WouldBlock)
        {
            throw new DirectoryInUseException(directory, failure);
        }
    }

    public void Dispose() => _file.Dispose();
}

/// <summary>A folder belongs to another process.</summary>
internal sealed class DirectoryInUseException(string directory, Exception inner)
    : IOException($"The folder '{directory}' is in use by another process.", inner);

/// <summary>Makes folders that a power cut does not take away again.</summary>
internal static class DurableDirectory
{
    /// <summary>Creates a folder and those above it that are missing, each with its name durable. Nothing happens when it is there.</summary>
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
