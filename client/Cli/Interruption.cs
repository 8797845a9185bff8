using System.Runtime.InteropServices;

namespace KvCluster.Cli;

/// <summary>
/// Ctrl-C and SIGTERM. The first one cancels <see cref="Token"/>, upon which a command ends within a second. A second one, or a command that
/// does not end, ends the program where it stands. From construction to disposal; signals come on threads of their own.
/// </summary>
internal sealed class Interruption : IDisposable
{
    private static readonly TimeSpan Limit = TimeSpan.FromSeconds(2);

    private readonly CancellationTokenSource _source = new();
    private readonly Timer _limit = new(static _ => End());
    private readonly PosixSignalRegistration _interrupt;
    private readonly PosixSignalRegistration _terminate;
    private int _signals;

    public Interruption()
    {
        _interrupt = PosixSignalRegistration.Create(PosixSignal.SIGINT, OnSignal);
        _terminate = PosixSignalRegistration.Create(PosixSignal.SIGTERM, OnSignal);
    }

    public CancellationToken Token => _source.Token;

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
        StandardError.Tell("interrupted before the command came to an end");
        Environment.Exit(ExitCodes.OutcomeUnknown);
    }
}
