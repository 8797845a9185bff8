using System.Runtime.InteropServices;

namespace KvCluster.Storage.Files;

/// <summary>
/// The disk as the engine sees it: the machine's own, and the tests' simulated disk, which can crash at any call. Called from the writer,
/// journal and checkpoint executors. A failure is a <see cref="StorageIoException"/>.
/// </summary>
/// <remarks>A created, renamed or deleted name is durable only after <see cref="SyncDirectory"/> of its directory (S8).</remarks>
internal interface IFileSystem
{
    /// <summary>Opens or creates a file for reading and writing.</summary>
    IStorageFile Open(string path, StorageFileOptions options);

    /// <summary>Whether a file with this name exists.</summary>
    bool FileExists(string path);

    /// <summary>Whether a directory with this name exists.</summary>
    bool DirectoryExists(string path);

    /// <summary>The names (not paths) of the files and directories in a directory, in ordinal order.</summary>
    IReadOnlyList<string> List(string directory);

    /// <summary>Creates one directory; its parent must exist. Does nothing if it exists already.</summary>
    void CreateDirectory(string path);

    /// <summary>Removes a file's name. Open handles remain usable. Does nothing if it does not exist.</summary>
    void Delete(string path);

    /// <summary>Removes a directory with all its content. Does nothing if it does not exist.</summary>
    void DeleteDirectory(string path);

    /// <summary>Renames a file or directory, replacing a file of that name.</summary>
    void Rename(string from, string to);

    /// <summary>Bytes by which files in a directory may grow before the disk is full. Others may use them first.</summary>
    long AvailableBytes(string directory);

    /// <summary>Makes the directory's names durable.</summary>
    void SyncDirectory(string path);
}

/// <summary>The machine's own disk.</summary>
internal static class LocalDisk
{
    private static readonly string? Obstacle = ObstacleOn(OperatingSystem.IsLinux(), Environment.Is64BitProcess, LibC.HasCalls);

    /// <summary>Its file system.</summary>
    /// <inheritdoc cref="Require" path="/exception"/>
    public static IFileSystem Instance
    {
        get
        {
            Require();
            return LinuxFileSystem.Instance;
        }
    }

    /// <summary>Called before anything is created.</summary>
    /// <exception cref="PlatformNotSupportedException">The engine does not run on this system, because it makes calls that only Linux with glibc
    /// has.</exception>
    public static void Require()
    {
        if (Obstacle is not null)
            throw new PlatformNotSupportedException(Obstacle);
    }

    /// <summary>Why the engine does not run on a system; null if it does.</summary>
    internal static string? ObstacleOn(bool isLinux, bool is64Bit, Func<bool> hasCalls) => isLinux && is64Bit && hasCalls()
        ? null
        : $"Data can be stored on Linux with glibc 2.28 or later and 64-bit processes only, and this is {RuntimeInformation.OSDescription} "
            + $"({RuntimeInformation.RuntimeIdentifier}). "
            + "Nothing was created or changed; use a machine or container image of that kind. Clients run everywhere.";
}
