namespace KvCluster.Cli;

/// <summary>Where `kv` keeps what belongs to a user, by the XDG Base Directory Specification.</summary>
internal static class UserFolders
{
    private const string Own = "kvcluster";

    /// <summary>For what the user has set.</summary>
    public static string Configuration => Of("XDG_CONFIG_HOME", ".config");

    /// <summary>For what is remembered between runs and may be lost.</summary>
    public static string State => Of("XDG_STATE_HOME", Path.Combine(".local", "state"));

    // The specification has relative paths ignored.
    private static string Of(string variable, string folderOfHome) => Path.Combine(
        Environment.GetEnvironmentVariable(variable) is { } given && Path.IsPathRooted(given)
            ? given
            : Path.Combine(Environment.GetFolderPath(Environment.SpecialFolder.UserProfile), folderOfHome),
        Own);
}
