using KvCluster.Client.Transport;
using KvCluster.V1;

namespace KvCluster.Simulation.Cluster.Routing;

/// <summary>
/// The exchange of one process with one node, like <see cref="NodeConnection"/>. A call is answered, ends at its deadline, or is told that the stream
/// broke and whether it may have arrived. After a break calls fail at once, for a time that grows.
/// </summary>
internal sealed class RoutedConnection(ClusterRun run, RoutedNetwork network, ClusterNode node) : INodeConnection
{
    private const long PauseMinUs = 50_000;
    private const long PauseMaxUs = 500_000;
    private const int LatePermille = 20;

    private readonly Dictionary<ulong, Open> _open = [];
    private long _pauseUs = PauseMinUs;
    private long _pausedUntilUs;
    private long _brokenUs;
    private bool _connected;
    private ulong _idLast;

    public ClusterNode Node { get; } = node;

    public bool IsPaused => run.NowUs < _pausedUntilUs;

    public ValueTask<CallAnswer> CallAsync(PendingCall call, CancellationToken cancellationToken)
    {
        if (IsPaused)
            return new ValueTask<CallAnswer>(new CallAnswer(null, false, "connection reset", false));
        var leftUs = Math.Max(0, (call.DeadlineMs * 1_000) - run.NowUs);
        var message = new Call
        {
            Id = ++_idLast,
            Method = call.Method,
            Request = call.Request,
            ShardId = call.Shard,
            Generation = call.Generation,
            TimeoutMs = (uint)Math.Clamp(leftUs / 1_000, 1, uint.MaxValue),
        };
        // A waiting caller continues in the step that ends its wait, on the run's thread.
        var open = new Open(message, call, new TaskCompletionSource<CallAnswer>());
        _open.Add(message.Id, open);
        Invariant.Check(call.Progress.TrySend(), "a call was given to a connection twice");
        run.Time.After(20 + run.Random.NextInt64(300), () => Arrive(open));
        if (run.Bug != InjectedBug.CallWithoutTimer)
            run.Time.After(leftUs + 1_000, () => Complete(open, new CallAnswer(null, run.Bug != InjectedBug.LateIsUnsent, "no answer in time", true)));
        return new ValueTask<CallAnswer>(open.Answer.Task);
    }

    /// <summary>The stream breaks. Open calls may have arrived, and none is answered any more.</summary>
    public void Break(string why)
    {
        if (_connected || _open.Count > 0)
            Fail(why, sent: true);
    }

    public ValueTask DisposeAsync()
    {
        Fail("the client is closed", sent: true);
        return ValueTask.CompletedTask;
    }

    // Also if the stream has broken since.
    private void Arrive(Open open)
    {
        if (network.IsCut(Node.Id))
            return;
        if (!Node.IsUp)
        {
            Fail("connection refused", sent: _connected);
            return;
        }

        _connected = true;
        Node.Serve(open.Message, reply =>
        {
            // Encoded and decoded, as on a wire.
            var copy = Reply.Parser.ParseFrom(Google.Protobuf.MessageExtensions.ToByteArray(reply));
            run.Time.After(20 + run.Random.NextInt64(!run.Healed && run.Chance(LatePermille) ? 2_000_000 : 300), () =>
            {
                if (!network.IsCut(Node.Id) && Complete(open, new CallAnswer(copy, true, null, false)) && open.Pending.Progress.TryReply())
                    open.Pending.Return();
            });
        });
    }

    private void Fail(string why, bool sent)
    {
        _pauseUs = run.NowUs - _brokenUs > 2 * PauseMaxUs ? PauseMinUs : Math.Min(2 * _pauseUs, PauseMaxUs);
        _brokenUs = run.NowUs;
        _pausedUntilUs = run.NowUs + _pauseUs;
        _connected = false;
        // Their callers continue at once and may call again.
        foreach (var open in _open.Values.ToArray())
            Complete(open, new CallAnswer(null, sent && run.Bug != InjectedBug.SentIsUnsent, why, false));
    }

    private bool Complete(Open open, in CallAnswer answer)
    {
        if (!_open.Remove(open.Message.Id))
            return false;
        open.Answer.SetResult(answer);
        return true;
    }

    private sealed record Open(Call Message, PendingCall Pending, TaskCompletionSource<CallAnswer> Answer);
}
