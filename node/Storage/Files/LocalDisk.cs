namespace KvCluster.Storage.Files;

/// <summary>Selects the file system for this machine.</summary>
internal static class LocalDisk
{
    /// <summary>The machine's own disk.</summary>
    public static IFileSystem Instance { get; } = OperatingSystem.IsLinux() ? LinuxFileSystem.Instance : PortableFileSystem.Instance;
}
