namespace KvCluster.ServiceDefaults.Programs;

/// <summary>Detects the end of standard input, which means that the process that started the program is gone.</summary>
internal static class InputEnd
{
    /// <summary>Returns a source that is cancelled with another token and, if requested, when standard input ends.</summary>
    public static CancellationTokenSource Link(bool untilInputEnds, CancellationToken stop)
    {
        var stopping = CancellationTokenSource.CreateLinkedTokenSource(stop);
        // Uses a separate thread, because reads of a console cannot be cancelled.
        if (untilInputEnds)
            new Thread(() => ReadToEnd(stopping)) { IsBackground = true, Name = "stdin" }.Start();
        return stopping;
    }

    private static void ReadToEnd(CancellationTokenSource stopping)
    {
        WaitForEnd();
        try
        {
            stopping.Cancel();
        }
        catch (ObjectDisposedException)
        {
            // The program is stopping already.
        }
    }

    private static void WaitForEnd()
    {
        using var input = Console.OpenStandardInput();
        var discarded = new byte[256];
        try
        {
            while (input.Read(discarded) > 0)
            {
            }
        }
        catch (IOException)
        {
            // The terminal hung up, so nobody is at the other end any more.
        }
    }
}
