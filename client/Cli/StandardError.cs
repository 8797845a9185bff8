namespace KvCluster.Cli;

/// <summary>Prints lines for the person who called `kv`. Any thread.</summary>
internal static class StandardError
{
    /// <summary>Prints one line. If standard error cannot be written, the exit code alone has to do: a full disk must not turn "not found" into a crash.</summary>
    public static void Tell(string line)
    {
        if (!StandardHandles.IsOpen(StandardHandles.Error))
            return;
        try
        {
            Console.Error.WriteLine($"kv: {OneLine.Of(line.ReplaceLineEndings(" "))}");
        }
        catch (IOException)
        {
            // There is no other place to report it.
        }
    }
}
