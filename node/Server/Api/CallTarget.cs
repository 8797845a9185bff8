using System.Diagnostics;
using Grpc.Core;

namespace KvCluster.Node.Api;

/// <summary>What a caller says about a call besides its message.</summary>
/// <param name="Shard">The shard that the caller's map gave, when <paramref name="Generation"/> is not 0.</param>
/// <param name="Generation">That shard's generation; 0: the caller says nothing of the shard.</param>
/// <param name="DeadlineTimestamp">Timestamp of the node's clock after which a change is not to be ordered any more; 0: none.</param>
/// <param name="CancellationToken">Fires when the caller does not wait any more.</param>
internal readonly record struct CallTarget(uint Shard, ulong Generation, long DeadlineTimestamp, CancellationToken CancellationToken)
{
    /// <summary>Timestamp of the node's clock at which it came; 0: nobody measures it, and it is in no trace.</summary>
    public long ArrivedTimestamp { get; init; }

    /// <summary>Who calls; null: nobody over a connection.</summary>
    public ServerCallContext? Caller { get; init; }

    /// <summary>Its number in its exchange.</summary>
    public ulong Id { get; init; }

    /// <summary>Where its exchange finds it while it waits; null: it is in none, and only the token ends it.</summary>
    public CallWaits? Waits { get; init; }

    /// <summary>Trees are not to be read on the thread that starts it, which others wait for.</summary>
    public bool ReadsElsewhere { get; init; }

    /// <summary>The call's span; null: it is in no trace.</summary>
    public Activity? Span { get; init; }

    /// <summary>To be called before a wait that changes nothing, and to be disposed of after it.</summary>
    public CallWaits.Wait BeginWait() => Waits?.Begin(Id, CancellationToken) ?? new CallWaits.Wait(null, 0, CancellationToken);
}
