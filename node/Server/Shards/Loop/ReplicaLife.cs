using KvCluster.Node.Shards.Context;
using KvCluster.Storage.Context;

namespace KvCluster.Node.Shards.Loop;

/// <summary>Where a replica is between its start and its end. It only moves down this list.</summary>
internal enum ReplicaPhase
{
    /// <summary>The replica takes turns.</summary>
    Running,

    /// <summary>
    /// The quarantine mark is being written. The replica is silent from here on, so that no later leader counts on it, but it still receives visits.
    /// </summary>
    Quarantining,

    /// <summary>It has failed or was stopped, and all its callers were answered.</summary>
    Ended,
}

/// <summary>
/// The life of one replica, and the failure that ended it. Changed on the shard's writer executor, except for <see cref="StopAsync"/>; any thread reads
/// <see cref="Failure"/>.
/// </summary>
/// <param name="context">Told of a failure.</param>
/// <param name="decisions">The replica's log.</param>
/// <param name="wake">Schedules a turn of the replica's event loop. Any thread.</param>
internal sealed class ReplicaLife(ShardReplicaContext context, DecisionLog decisions, Action wake)
{
    private readonly TaskCompletionSource _stopped = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private volatile Exception? _failure;
    private volatile bool _isStopping;

    /// <summary>Called once, when the replica ends: takes no more writes, unpins what is being sent, and answers waiting callers.</summary>
    public required Action Ended { private get; init; }

    /// <summary>The current phase. Writer executor.</summary>
    public ReplicaPhase Phase { get; private set; }

    /// <summary>Why the replica stopped by itself; null while it runs.</summary>
    public Exception? Failure => _failure;

    /// <summary>Whether it was told to stop.</summary>
    public bool IsStopping => _isStopping;

    /// <summary>The quarantine mark is about to be written.</summary>
    public void Quarantine()
    {
        if (Phase == ReplicaPhase.Running)
            MoveTo(ReplicaPhase.Quarantining);
    }

    /// <summary>Ends the replica with its first failure, and reports it.</summary>
    public void Fail(Exception failure)
    {
        if (_failure is not null)
            return;
        // A store that has stopped refuses calls before its end is reported. What stopped it is the actual failure.
        if (failure is StoreStoppedException { InnerException: { } first })
            failure = first;
        _failure = failure;
        decisions.Fail(failure);
        End();
        context.Failed(failure);
        wake();
    }

    /// <summary>Tells the replica to stop, which it does in its next turn. The task ends when it has. Any thread.</summary>
    public Task StopAsync()
    {
        _isStopping = true;
        wake();
        return _stopped.Task;
    }

    /// <summary>Ends the replica because it was told to stop.</summary>
    public void Stop()
    {
        End();
        _stopped.TrySetResult();
    }

    private void End()
    {
        if (Phase == ReplicaPhase.Ended)
            return;
        MoveTo(ReplicaPhase.Ended);
        Ended();
    }

    private void MoveTo(ReplicaPhase next)
    {
        Invariant.Check(next >= Phase, $"The replica was to become {next}, but it is {Phase}.");
        Phase = next;
    }
}
