namespace KvCluster.Cli;

/// <summary>
/// The runtime decodes arguments as UTF-8 and puts U+FFFD where bytes are none, so that many keys would become one: such an argument is
/// refused. The system knows the bytes.
/// </summary>
internal static class ArgumentBytes
{
    private const char Replacement = '\uFFFD';
    private const string OwnCommandLine = "/proc/self/cmdline";

    /// <summary>The first argument whose bytes are not UTF-8; null if there is none.</summary>
    public static string? FirstWrong(string[] arguments)
    {
        if (!arguments.Any(argument => argument.Contains(Replacement, StringComparison.Ordinal)))
            return null;
        return FirstWrong(arguments, File.Exists(OwnCommandLine) ? File.ReadAllBytes(OwnCommandLine) : []);
    }

    /// <inheritdoc cref="FirstWrong(string[])"/>
    /// <param name="arguments">As decoded.</param>
    /// <param name="commandLine">Program and arguments, each ended by a zero byte. Without it an argument with U+FFFD counts as wrong.</param>
    public static string? FirstWrong(string[] arguments, ReadOnlySpan<byte> commandLine)
    {
        // From the last one on: what the arguments stand behind may be the program, or the runtime's own host and the program.
        for (var i = arguments.Length - 1; i >= 0; i--)
        {
            commandLine = commandLine.IsEmpty ? commandLine : commandLine[..^1];
            var begin = commandLine.LastIndexOf((byte)0) + 1;
            if (arguments[i].Contains(Replacement, StringComparison.Ordinal) && Text.FromBytes(commandLine[begin..]) != arguments[i])
                return arguments[i];
            commandLine = commandLine[..begin];
        }

        return null;
    }
}
