namespace KvCluster.Local;

/// <summary>Finds the program `kv`, which the launcher names and does not start.</summary>
internal static class CommandProgram
{
    /// <summary>
    /// Its path: beside the launcher if they were published together, else where the build puts it: artifacts/bin/PROJECT/CONFIGURATION/. Null if it is at
    /// neither place, because the launcher was copied without it.
    /// </summary>
    /// <param name="folder">That of the launcher.</param>
    public static string? FindFrom(string folder)
    {
        var own = new DirectoryInfo(folder);
        var name = OperatingSystem.IsWindows() ? "kv.exe" : "kv";
        if (File.Exists(Path.Combine(own.FullName, "kv.dll")))
            return Path.Combine(own.FullName, name);
        if (own.Parent?.Parent is not { } projects)
            return null;
        var built = Path.Combine(projects.FullName, "KvCluster.Cli", own.Name, name);
        return File.Exists(built) ? built : null;
    }
}
