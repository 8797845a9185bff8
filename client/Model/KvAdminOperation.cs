namespace KvCluster.Client;

/// <summary>Something that takes long and goes on without its caller, such as the replacement of a replica.</summary>
/// <param name="Id">Names it in calls.</param>
/// <param name="Shard">The shard whose leader executes it.</param>
/// <param name="State">Whether it runs, or how it ended.</param>
public sealed record KvAdminOperation(string Id, uint Shard, KvOperationState State)
{
    /// <summary>The node whose replica is removed; null if none is.</summary>
    public uint? FromNode { get; init; }

    /// <summary>The node that gets a new replica; null if none does.</summary>
    public uint? ToNode { get; init; }

    /// <summary>Why it failed; empty if it did not.</summary>
    public string Reason { get; init; } = "";

    /// <summary>What it is doing, for people; empty if it has ended.</summary>
    public string Progress { get; init; } = "";

    /// <summary>How much of what is to be copied is copied; null while that is not known.</summary>
    public ulong? DoneBytes { get; init; }

    /// <summary>How much is to be copied; null while that is not known.</summary>
    public ulong? TotalBytes { get; init; }

    /// <summary>The node that executes it, or executed it last.</summary>
    public uint Node { get; init; }

    /// <summary>When that node began.</summary>
    public DateTimeOffset Started { get; init; }

    /// <summary>When it ended; null while it runs.</summary>
    public DateTimeOffset? Ended { get; init; }
}

/// <summary>The state of an operation.</summary>
public enum KvOperationState
{
    /// <summary>It runs.</summary>
    Running,

    /// <summary>It has succeeded.</summary>
    Done,

    /// <summary>It could not be completed; <see cref="KvAdminOperation.Reason"/> says why.</summary>
    Failed,

    /// <summary>An operator cancelled it.</summary>
    Cancelled,
}

/// <summary>The operations of a cluster.</summary>
/// <param name="Operations">The running ones first, then those that ended some time ago.</param>
/// <param name="Silent">Nodes that did not answer, and why. Their operations are missing.</param>
public sealed record KvAdminOperations(IReadOnlyList<KvAdminOperation> Operations, IReadOnlyDictionary<uint, string> Silent);
