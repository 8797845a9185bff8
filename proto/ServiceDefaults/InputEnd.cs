namespace KvCluster.ServiceDefaults;

/// <summary>Tells when standard input ends: whoever started the program and held the other end is gone.</summary>
internal static class InputEnd
{
    /// <summary>A token that is cancelled with another one and, if asked for, when standard input ends.</summary>
    public static CancellationTokenSource Link(bool untilInputEnds, CancellationToken stop)
    {
        var stopping = CancellationTokenSource.CreateLinkedTokenSource(stop);
        // A thread of its own: reads of a console cannot be cancelled.
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
            // It stops already.
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
            // A terminal that was hung up: nobody is at the other end any more.
        }
    }
}
