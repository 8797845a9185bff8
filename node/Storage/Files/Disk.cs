namespace KvCluster.Storage.Files;

/// <summary>Which file system this machine gets.</summary>
internal static class Disk
{
    /// <summary>The machine's own disk.</summary>
    public static IFileSystem Local { get; } = OperatingSystem.IsLinux() ? LinuxFileSystem.Instance : PortableFileSystem.Instance;
}
