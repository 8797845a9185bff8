
namespace KvCluster.Cli;

/// <summary>Standard input, for the commands that take "-". One reader.</summary>
internal static class StandardInput
{
    private const int ChunkBytes = 1 << 16;

    /// <exception cref="CliException">It is closed.</exception>
    public static Stream Open() => StandardHandles.IsOpen(StandardHandles.Input)
        ? Console.OpenStandardInput()
        : throw new CliException(ExitCodes.Usage, "standard input is closed.");

    /// <summary>All of it. The wait for a pipe or a terminal ends with <paramref name="stop"/>.</summary>
    /// <param name="bytesMax">More than this is refused.</param>
    /// <param name="stop">Ends the wait.</param>
    /// <exception cref="CliException">It is closed, too long, or cannot be read.</exception>
    public static Task<ReadOnlyMemory<byte>> ReadToEndAsync(int bytesMax, CancellationToken stop)
    {
        var input = Open();
        // On another thread, which is left at a cancellation: the read itself cannot be cancelled.
        return Task.Run(() => ReadToEnd(input, bytesMax), CancellationToken.None).WaitAsync(stop);
    }

    private static ReadOnlyMemory<byte> ReadToEnd(Stream input, int bytesMax)
    {
        using var all = new MemoryStream();
        var chunk = new byte[ChunkBytes];
        try
        {
            while (input.Read(chunk) is > 0 and var read)
            {
                all.Write(chunk, 0, read);
                if (all.Length > bytesMax)
                    throw new CliException(ExitCodes.Usage, $"standard input has more than the {bytesMax} bytes that a value may have.");
            }
        }
        catch (IOException e)
        {
            throw new CliException(ExitCodes.Usage, $"standard input cannot be read: {e.Message}");
        }

        return all.ToArray();
    }
}
