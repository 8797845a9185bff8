using System.Diagnostics;
using Grpc.Core;
using KvCluster.Storage.Transactions;

namespace KvCluster.Node.Api.Calls;

/// <summary>What a caller specifies about a call besides its message.</summary>
/// <param name="Shard">The shard according to the caller's map, if <paramref name="Generation"/> is not 0.</param>
/// <param name="Generation">That shard's generation; 0 if the caller names no shard.</param>
/// <param name="DeadlineTimestamp">Timestamp of the node's clock after which a change must no longer be ordered; 0: none.</param>
/// <param name="CancellationToken">Fires when the caller no longer waits.</param>
internal readonly record struct CallTarget(ShardId Shard, ulong Generation, long DeadlineTimestamp, CancellationToken CancellationToken)
{
    /// <summary>Timestamp of the node's clock at which the call arrived; 0 if it is neither measured nor traced.</summary>
    public long ArrivedTimestamp { get; init; }

    /// <summary>The caller's connection; null if there is none.</summary>
    public ServerCallContext? Caller { get; init; }

    /// <summary>For a chunk of a load, the number that it must have; 0 for a call.</summary>
    public ulong Chunk { get; init; }

    /// <summary>The call's number in its exchange.</summary>
    public ulong Id { get; init; }

    /// <summary>Where its exchange finds it while it waits; null if it is in no exchange, and then only the token ends it.</summary>
    public CallWaits? Waits { get; init; }

    /// <summary>
    /// Holds the notices of changes until all that arrived together are submitted. For the thread that starts the call, until that returns; null: each change
    /// is noticed at once.
    /// </summary>
    public HeldNotices? Notices { get; init; }

    /// <summary>Trees must not be read on the thread that starts the call, because others wait for that thread.</summary>
    public bool ReadsElsewhere { get; init; }

    /// <summary>The call's span; null if it is not traced.</summary>
    public Activity? Span { get; init; }

    /// <summary>To be called before a wait that changes nothing, and disposed after it.</summary>
    public CallWaits.Wait BeginWait() => Waits?.Begin(Id, CancellationToken) ?? new CallWaits.Wait(null, 0, CancellationToken);
}
