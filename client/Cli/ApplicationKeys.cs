namespace KvCluster.Cli;

/// <summary>
/// When a program first uses its console, the runtime asks the terminal for the keys of applications, and it never takes that back: the next program would get
/// other bytes for the keys of the cursor. Called by whatever uses the console, afterwards, on any thread. The runtime's own reading of keys knows both.
/// </summary>
internal static class ApplicationKeys
{
    private const string Ordinary = "\u001b[?1l\u001b>";

    /// <summary>
    /// Has the terminal send ordinary keys again. Does nothing where the runtime has not asked, because there is no terminal or a simple one.
    /// </summary>
    public static void Leave()
    {
        if (OperatingSystem.IsWindows() || Console.IsInputRedirected || Console.IsOutputRedirected
            || Environment.GetEnvironmentVariable("TERM") is null or "" or "dumb")
            return;
        try
        {
            Console.Write(Ordinary);
        }
        catch (IOException)
        {
            // The terminal is gone, and sends no keys.
        }
    }
}
