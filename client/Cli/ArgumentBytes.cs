namespace KvCluster.Cli;

/// <summary>
/// The runtime decodes arguments as UTF-8 and replaces invalid bytes with U+FFFD, so that different keys would become the same. Such arguments are refused. The
/// system still has the original bytes.
/// </summary>
internal static class ArgumentBytes
{
    private const char Replacement = '\uFFFD';
    private const string OwnCommandLine = "/proc/self/cmdline";

    /// <summary>Returns the first argument whose bytes are not valid UTF-8; null if there is none.</summary>
    public static string? FirstWrong(string[] arguments)
    {
        if (!arguments.Any(argument => argument.Contains(Replacement, StringComparison.Ordinal)))
            return null;
        return FirstWrong(arguments, File.Exists(OwnCommandLine) ? File.ReadAllBytes(OwnCommandLine) : []);
    }

    /// <inheritdoc cref="FirstWrong(string[])"/>
    /// <param name="arguments">The arguments as the runtime decoded them.</param>
    /// <param name="commandLine">Program and arguments, each followed by a zero byte. If it is empty, every argument with U+FFFD counts as wrong.</param>
    public static string? FirstWrong(string[] arguments, ReadOnlySpan<byte> commandLine)
    {
        // Backwards, because the arguments may be preceded by the program, or by the runtime's host and the program.
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
