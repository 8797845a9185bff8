using KvCluster.Client.Transport;
using KvCluster.V1;

namespace KvCluster.Tests.Client.Hostile;

/// <summary>
/// The connection of a client to a node for calls on keys, in the time of the run. What it tells the library is what <see cref="NodeConnection"/> tells it: a
/// reply, or that there was none and whether the request may have arrived. It looks at deadlines every tenth of a second, as that does.
/// </summary>
internal sealed class HostileConnection(HostileCluster cluster, HostileNode node) : INodeConnection
{
    private const int SweepMs = 100;
    private const int SlowMs = 250;
    private const int ConnectMs = 2_000;
    private const int RetryMs = 20;
    private const int PauseMinMs = 50;
    private const int PauseMaxMs = 500;

    private readonly List<OpenCall> _open = [];
    private readonly long _sweep = cluster.Random.Next(SweepMs);
    private string _failure = "";
    private long _pausedUntilMs;
    private long _openedMs;
    private int _pauseMs = PauseMinMs;

    // When the attempt to connect began; 0 if there is none.
    private long _connectingSinceMs;
    private int _attempts;
    private bool _isConnected;

    public HostileNode Node => node;

    public bool IsClosed { get; private set; }

    public bool IsPaused => IsBroken || IsSlow;

    public bool IsSlow => _connectingSinceMs != 0 && NowMs - _connectingSinceMs >= SlowMs;

    public string Failure => _failure;

    private bool IsBroken => NowMs < _pausedUntilMs;

    private long NowMs => cluster.Clock.NowMs;

    public async ValueTask<CallAnswer> CallAsync(PendingCall call, CancellationToken cancellationToken)
    {
        if (IsClosed)
            return new CallAnswer(null, false, "the client is closed", false);
        if (IsBroken)
            return new CallAnswer(null, false, _failure, false);
        if (IsSlow && !call.IsPatient)
            return new CallAnswer(null, false, "no connection yet", false);
        var deadlineMs = call.DeadlineMs;
        var open = new OpenCall(this, call.IsPatient, new Call
        {
            Method = call.Method,
            Request = call.Request,
            Shard = call.Shard.Value,
            Generation = call.Generation,
            TimeoutMs = (uint)Math.Clamp(deadlineMs - NowMs, 1, uint.MaxValue),
        });
        _open.Add(open);
        cluster.Clock.After(Math.Max(0, deadlineMs - NowMs) + Late(deadlineMs), () => End(open, "no answer in time", deadlinePassed: true));
        if (_isConnected)
            Send(open);
        else
            Connect();
        using (cancellationToken.UnsafeRegister(static state => ((OpenCall)state!).GiveUp(), open))
            return await open.Answer.Task;
    }

    /// <summary>It breaks, or could not be opened. Open calls that were sent may have arrived, and none is answered any more.</summary>
    public void Break(string why)
    {
        if (!_isConnected && _connectingSinceMs == 0)
            return;
        _pauseMs = NowMs - _openedMs > PauseMaxMs ? PauseMinMs : Math.Min(_pauseMs * 2, PauseMaxMs);
        _pausedUntilMs = NowMs + _pauseMs;
        _failure = $"{node.Address}: {why}";
        (_isConnected, _connectingSinceMs) = (false, 0);
        _attempts++;
        EndAll(_failure);
    }

    public ValueTask DisposeAsync()
    {
        (IsClosed, _isConnected, _connectingSinceMs) = (true, false, 0);
        _attempts++;
        EndAll("the client is closed");
        return ValueTask.CompletedTask;
    }

    // Deadlines are looked at in turns, of which the next one comes so much later.
    private long Late(long deadlineMs) => (((_sweep - deadlineMs) % SweepMs) + SweepMs) % SweepMs;

    private void Connect()
    {
        if (_connectingSinceMs != 0)
            return;
        (_openedMs, _connectingSinceMs) = (NowMs, NowMs);
        var attempt = ++_attempts;
        cluster.Clock.After(SlowMs + cluster.Random.Next(SweepMs), () =>
        {
            if (IsConnecting(attempt))
                EndImpatient();
        });
        cluster.Clock.After(ConnectMs, () =>
        {
            if (IsConnecting(attempt))
                Break("no connection in time");
        });
        TryConnectLater(attempt, 1 + cluster.Random.Next(3));
    }

    private bool IsConnecting(int attempt) => attempt == _attempts && _connectingSinceMs != 0;

    private void TryConnectLater(int attempt, int delayMs) => cluster.Clock.After(delayMs, () =>
    {
        if (!IsConnecting(attempt))
            return;
        if (node.IsCut)
        {
            TryConnectLater(attempt, RetryMs);
            return;
        }
        if (node.IsDown)
        {
            Break("connection refused");
            return;
        }
        (_isConnected, _connectingSinceMs) = (true, 0);
        foreach (var open in _open.ToArray())
            Send(open);
    });

    private void Send(OpenCall open)
    {
        open.IsSent = true;
        cluster.Deliver(node, open.Message, reply =>
        {
            if (_open.Remove(open))
                open.Answer.SetResult(new CallAnswer(reply, true, null, false));
        });
    }

    private void EndImpatient()
    {
        foreach (var open in _open.Where(static open => !open.IsPatient).ToArray())
            End(open, "no connection yet", deadlinePassed: false);
    }

    // Their callers go on at once, and may call again.
    private void EndAll(string failure)
    {
        foreach (var open in _open.ToArray())
            End(open, failure, deadlinePassed: false);
    }

    private void End(OpenCall open, string failure, bool deadlinePassed)
    {
        if (_open.Remove(open))
            open.Answer.SetResult(new CallAnswer(null, open.IsSent, failure, deadlinePassed));
    }

    private sealed class OpenCall(HostileConnection connection, bool isPatient, Call message)
    {
        public bool IsPatient => isPatient;

        public Call Message => message;

        public bool IsSent { get; set; }

        public TaskCompletionSource<CallAnswer> Answer { get; } = new();

        public void GiveUp() => connection.End(this, "cancelled", deadlinePassed: false);
    }
}
