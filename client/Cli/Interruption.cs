using System.Runtime.InteropServices;

namespace KvCluster.Cli;

/// <summary>
/// Handles Ctrl-C and SIGTERM from construction to disposal. The first signal cancels <see cref="Token"/>, and the command ends within a second. A second
/// signal ends the program at once, and so does a command that does not end in time. Signals arrive on threads of their own.
/// </summary>
internal sealed class Interruption : IDisposable
{
    private static readonly TimeSpan Limit = TimeSpan.FromSeconds(2);

    private static volatile bool _nothingChanges;

    private readonly CancellationTokenSource _source = new();
    private readonly Timer _limit = new(static _ => End());
    private readonly PosixSignalRegistration _interrupt;
    private readonly PosixSignalRegistration _terminate;
    private int _signals;

    public Interruption()
    {
        _nothingChanges = false;
        _interrupt = PosixSignalRegistration.Create(PosixSignal.SIGINT, OnSignal);
        _terminate = PosixSignalRegistration.Create(PosixSignal.SIGTERM, OnSignal);
    }

    public CancellationToken Token => _source.Token;

    /// <summary>What an interruption means for the cluster: the end of a sentence that begins with it.</summary>
    public static string Consequence => _nothingChanges ? "nothing was changed" : "changes that were sent may have been applied";

    /// <summary>Called by commands that only read, when they begin.</summary>
    public static void NothingChanges() => _nothingChanges = true;

    public void Dispose()
    {
        _interrupt.Dispose();
        _terminate.Dispose();
        _limit.Dispose();
        _source.Dispose();
    }

    private void OnSignal(PosixSignalContext signal)
    {
        signal.Cancel = true;
        if (Interlocked.Increment(ref _signals) > 1)
            End();
        _limit.Change(Limit, Timeout.InfiniteTimeSpan);
        _source.Cancel();
    }

    private static void End()
    {
        StandardError.Tell($"interrupted before the command ended: {Consequence}");
        Environment.Exit(ExitCodes.OutcomeUnknown);
    }
}
