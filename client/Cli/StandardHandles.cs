using System.Runtime.InteropServices;

namespace KvCluster.Cli;

/// <summary>
/// Tells whether standard input, output and error were open when the program started. The runtime reuses the numbers of closed ones for its own pipes, where a
/// read would never end and a write would reach the runtime. What the program inherited lacks the flag "close on exec"; what the runtime opens has it.
/// </summary>
/// <remarks>On Windows they count as open.</remarks>
internal static class StandardHandles
{
    public const int Input = 0;
    public const int Output = 1;
    public const int Error = 2;

    private const int GetHandleFlags = 1;
    private const int CloseOnExec = 1;

    public static bool IsOpen(int handle) =>
        OperatingSystem.IsWindows() || (Control(handle, GetHandleFlags) is >= 0 and var flags && (flags & CloseOnExec) == 0);

    [DllImport("libc", EntryPoint = "fcntl", SetLastError = true)]
    private static extern int Control(int handle, int command);
}

/// <summary>Prints lines for the person who called `kv`. Any thread.</summary>
internal static class StandardError
{
    /// <summary>
    /// Prints one line. If standard error cannot be written, the exit code alone has to do: a full disk must not turn "not found" into a crash.
    /// </summary>
    public static void Tell(string line)
    {
        if (!StandardHandles.IsOpen(StandardHandles.Error))
            return;
        try
        {
            Console.Error.WriteLine($"kv: {OneLine.Of(line.ReplaceLineEndings(" "))}");
            ApplicationKeys.Leave();
        }
        catch (IOException)
        {
            // There is no other place to report it.
        }
    }
}

/// <summary>Standard input, for the commands that accept "-", and for the shell whose commands are in it. One reader.</summary>
internal static class StandardInput
{
    private static bool _hasCommands;

    /// <exception cref="CliException">It is closed, or it is the shell's.</exception>
    public static Stream Open()
    {
        // What the shell has not read yet would be taken for a value, and the rest would be none.
        if (_hasCommands)
            throw new CliException(ExitCodes.Usage, "standard input has the commands of the shell, so none of them can read it.");
        return StandardHandles.IsOpen(StandardHandles.Input)
            ? Console.OpenStandardInput()
            : throw new CliException(ExitCodes.Usage, "standard input is closed.");
    }

    /// <summary>For the shell, whose commands are in it. From now on nobody else gets it.</summary>
    /// <exception cref="CliException">It is closed.</exception>
    public static Stream OpenForCommands()
    {
        var opened = Open();
        _hasCommands = true;
        return opened;
    }
}
