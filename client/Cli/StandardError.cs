namespace KvCluster.Cli;

/// <summary>Lines for the person who called `kv`. Any thread.</summary>
internal static class StandardError
{
    /// <summary>One line. Where nobody can take it the exit code has to say it all: a full log disk must not turn "not found" into a crash.</summary>
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
            // There is no other place to tell it.
        }
    }
}
