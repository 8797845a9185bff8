using System.Security.Cryptography;
using System.Text;

namespace KvCluster.Local;

/// <summary>The token of a local cluster's console. It is random, created with the cluster, and kept with its data.</summary>
internal static class AdminTokenFile
{
    private const int TokenBytes = 16;

    /// <summary>Creates the file if it does not exist. Only its owner can read it.</summary>
    /// <exception cref="IOException">The file cannot be written.</exception>
    public static void Keep(string path)
    {
        if (File.Exists(path))
            return;
        var temporary = path + ".new";
        // A file left by a crash may have a different mode.
        File.Delete(temporary);
        var options = new FileStreamOptions { Mode = FileMode.CreateNew, Access = FileAccess.Write };
        if (!OperatingSystem.IsWindows())
            options.UnixCreateMode = UnixFileMode.UserRead | UnixFileMode.UserWrite;
        using (var file = new FileStream(temporary, options))
        {
            file.Write(Encoding.ASCII.GetBytes(Convert.ToHexStringLower(RandomNumberGenerator.GetBytes(TokenBytes)) + "\n"));
            file.Flush(flushToDisk: true);
        }
        // Synced, then renamed into place, so that a crash leaves the whole file or none. With an empty file, as a power cut left one, no node starts.
        File.Move(temporary, path);
    }
}
