using KvCluster.Node.Shards.Context;
using KvCluster.ServiceDefaults.Logs;
using KvCluster.V1;

namespace KvCluster.Node.Shards.Loop;

/// <summary>
/// A replica's decisions: one line each in the node's log and in its recent activity, and the last ones for <c>kv status --shard</c>, kept while the process
/// lives, even if the replica has failed. Written on the shard's writer executor, read on any thread.
/// </summary>
/// <param name="context">The log, the metrics and the clock.</param>
/// <param name="shard">The shard's id.</param>
internal sealed class DecisionLog(ShardReplicaContext context, ShardId shard)
{
    /// <summary>An election writes about ten lines, so the last few elections are complete.</summary>
    private const int LinesMax = 64;

    private readonly Lock _lock = new();
    private readonly Queue<Decision> _lines = new(LinesMax);
    private readonly OncePerReason _decisions = new();

    /// <summary>The last lines, oldest first. Any thread.</summary>
    public Decision[] ToArray()
    {
        lock (_lock)
            return [.. _lines];
    }

    /// <summary>The core decided something.</summary>
    public void Log(string text)
    {
        // A replica that nobody answers starts and abandons campaigns several times a second.
        if (!_decisions.MaySay(text))
            return;
        Keep(text, alarm: false);
        ShardLog.Decision(context.Log, shard, text);
    }

    /// <summary>An operator must look at it.</summary>
    public void Alarm(string text)
    {
        Keep(text, alarm: true);
        ShardLog.Alarm(context.Log, shard, text);
        context.Metrics.Alarmed();
    }

    /// <summary>The replica has failed.</summary>
    public void Fail(Exception failure)
    {
        context.Metrics.ReplicaFailed();
        context.Metrics.Alarmed();
        if (failure is QuarantinedException)
            context.Metrics.Quarantined();
        Keep($"stopped: {failure.Message}", alarm: true);
        ShardLog.Stopped(context.Log, shard, failure);
    }

    private void Keep(string text, bool alarm)
    {
        // Not modified afterwards.
        var line =
            new Decision { UnixUs = (context.Clock.GetUtcNow() - DateTimeOffset.UnixEpoch).Ticks / TimeSpan.TicksPerMicrosecond, Text = text, Alarm = alarm };
        lock (_lock)
        {
            if (_lines.Count == LinesMax)
                _lines.Dequeue();
            _lines.Enqueue(line);
        }
        context.Metrics.Activity.Decided(shard, line);
    }
}
