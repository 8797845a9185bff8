using System.Security.Cryptography;

namespace KvCluster.Local;

/// <summary>The token of a local cluster's console: chosen at random when the cluster is made, and kept with its data.</summary>
internal static class AdminTokenFile
{
    private const int TokenBytes = 16;

    /// <summary>Leaves a file that is there as it is. A new one can be read by its owner only.</summary>
    /// <exception cref="IOException">It cannot be written.</exception>
    public static void Keep(string path)
    {
        if (File.Exists(path))
            return;
        var temporary = path + ".new";
        // One that a crash left behind may have another mode.
        File.Delete(temporary);
        var options = new FileStreamOptions { Mode = FileMode.CreateNew, Access = FileAccess.Write };
        if (!OperatingSystem.IsWindows())
            options.UnixCreateMode = UnixFileMode.UserRead | UnixFileMode.UserWrite;
        using (var file = new StreamWriter(temporary, options))
            file.WriteLine(Convert.ToHexStringLower(RandomNumberGenerator.GetBytes(TokenBytes)));
        // Renamed into place: a crash leaves all of it or nothing.
        File.Move(temporary, path);
    }
}
