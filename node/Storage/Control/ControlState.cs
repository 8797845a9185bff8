namespace KvCluster.Storage.Control;

/// <summary>
/// A replica's hard state with the identity of its store, as its control file has them (FORMAT.md, "Control file"). It holds only after it was written and
/// synced. The protocol is started with the one that was recovered, and each state that it wants is a changed copy of that.
/// </summary>
internal sealed record ControlState : HardState
{
    private const long MicrosecondsPerMillisecond = 1_000;

    // No lease is as long; a file that somebody has changed may say so.
    private const long LeaseMsMax = (long.MaxValue / MicrosecondsPerMillisecond) - 1;

    /// <summary>The shard that the directory belongs to.</summary>
    public required ShardId Shard { get; init; }

    /// <summary>The longest lease in milliseconds, which the file has. It is rounded up, because waiting longer is safe.</summary>
    public long LeaseLongestMs
    {
        get => (LeaseLongestUs + MicrosecondsPerMillisecond - 1) / MicrosecondsPerMillisecond;
        init => LeaseLongestUs = Math.Clamp(value, 0, LeaseMsMax) * MicrosecondsPerMillisecond;
    }

    /// <summary>Hash of the cluster's name and creation, so that a directory does not join another cluster.</summary>
    public ulong ClusterHash { get; init; }

    /// <summary>The part of it that never changes.</summary>
    public StoreIdentity Identity => new(ReplicaId, Shard, ClusterHash);
}
