namespace KvCluster.Storage.Files;

/// <summary>Which file system this machine gets.</summary>
internal static class LocalDisk
{
    /// <summary>The machine's own disk.</summary>
    public static IFileSystem Instance { get; } = OperatingSystem.IsLinux() ? LinuxFileSystem.Instance : PortableFileSystem.Instance;
}
