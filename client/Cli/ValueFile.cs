namespace KvCluster.Cli;

/// <summary>Reads and writes values from and to files, byte for byte.</summary>
internal static class ValueFile
{
    private const int ChunkBytes = 1 << 16;
    private const string StandardInputName = "-";
    private const char Mark = '@';

    /// <summary>
    /// Returns the value that an argument of `put` means: the bytes of the file named after @, standard input for -, else the text itself, where @@ at the
    /// beginning is one @.
    /// </summary>
    /// <param name="bytesMax">Longer values are refused.</param>
    /// <param name="stop">Stops waiting for a pipe or a terminal.</param>
    /// <exception cref="CliException">The file or standard input cannot be read, or is too long.</exception>
    public static Task<ReadOnlyMemory<byte>> ReadArgumentAsync(string argument, int bytesMax, CancellationToken stop)
    {
        if (argument == StandardInputName)
            return ReadToEndAsync("standard input", StandardInput.Open, bytesMax, stop);
        if (!argument.StartsWith(Mark))
            return Task.FromResult(Text.ToBytes(argument));
        var rest = argument[1..];
        if (rest.StartsWith(Mark))
            return Task.FromResult(Text.ToBytes(rest));
        return rest.Length > 0
            ? ReadToEndAsync(argument, () => OpenForReading(argument, rest), bytesMax, stop)
            : throw new CliException(ExitCodes.Usage, "@ is not followed by the name of a file. A value that begins with @ is written with @@.");
    }

    /// <summary>Creates or replaces a file, or writes to the device or pipe that the path names.</summary>
    /// <exception cref="CliException">It cannot be written.</exception>
    public static void Write(string option, string path, ReadOnlySpan<byte> value)
    {
        try
        {
            RefuseDirectory(path);
            using var file = new FileStream(path, FileMode.Create, FileAccess.Write, FileShare.Read, bufferSize: 0);
            Fill(option, path, file, value);
        }
        catch (Exception e) when (IsOfFile(e))
        {
            throw new CliException(ExitCodes.Usage, $"{option} {path} cannot be written: {e.Message}");
        }
    }

    // The command line is correct; the disk is full, for example.
    private static void Fill(string option, string path, FileStream file, ReadOnlySpan<byte> value)
    {
        try
        {
            file.Write(value);
        }
        catch (IOException e)
        {
            throw new CliException(ExitCodes.Internal, $"{option} {path} was not written completely: {e.Message}");
        }
    }

    /// <summary>Refuses what the system would refuse for want of permission, also to those who have every one.</summary>
    /// <exception cref="IOException">The path is a directory.</exception>
    public static void RefuseDirectory(string path)
    {
        if (Directory.Exists(path))
            throw new IOException("it is a directory");
    }

    private static FileStream OpenForReading(string argument, string path)
    {
        try
        {
            RefuseDirectory(path);
            return new FileStream(path, FileMode.Open, FileAccess.Read, FileShare.ReadWrite, bufferSize: 0);
        }
        catch (Exception e) when (IsOfFile(e))
        {
            throw new CliException(ExitCodes.Usage, $"{argument} cannot be read: {e.Message} (a value that begins with @ is written with @@)");
        }
    }

    // On another thread, which is abandoned on cancellation, because neither the read nor the opening of a named pipe can be cancelled.
    private static Task<ReadOnlyMemory<byte>> ReadToEndAsync(string name, Func<Stream> open, int bytesMax, CancellationToken stop) =>
        Task.Run(() => ReadToEnd(name, open, bytesMax), CancellationToken.None).WaitAsync(stop);

    private static ReadOnlyMemory<byte> ReadToEnd(string name, Func<Stream> open, int bytesMax)
    {
        using var input = open();
        using var all = new MemoryStream();
        var chunk = new byte[ChunkBytes];
        try
        {
            while (input.Read(chunk) is > 0 and var read)
            {
                all.Write(chunk, 0, read);
                if (all.Length > bytesMax)
                    throw new CliException(ExitCodes.Usage, $"{name} has more than the {bytesMax} bytes that a value may have.");
            }
        }
        catch (Exception e) when (IsOfFile(e))
        {
            throw new CliException(ExitCodes.Usage, $"{name} cannot be read: {e.Message}");
        }

        return all.ToArray();
    }

    private static bool IsOfFile(Exception e) => e is IOException or UnauthorizedAccessException or ArgumentException or NotSupportedException;
}
