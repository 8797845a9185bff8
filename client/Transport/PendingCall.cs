using System.Collections.Concurrent;
using System.Threading.Tasks.Sources;
using Google.Protobuf;
using KvCluster.Client.Runtime;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// One call between its caller, a connection and the node. The caller rents it, the one that ends its <see cref="Progress"/> answers it, and
/// <see cref="NodeConnection.CallAsync"/> awaits it and returns it. The caller's code never runs on a connection's loops.
/// </summary>
internal sealed class PendingCall : IValueTaskSource<CallAnswer>
{
    private const int PooledMax = 4096;
    private static readonly ConcurrentQueue<PendingCall> Pool = new();
    private ManualResetValueTaskSourceCore<CallAnswer> _core = new() { RunContinuationsAsynchronously = true };
    private CallProgress _progress;

    public Method Method { get; private set; }

    /// <summary>The encoded request message. Must not change until the answer.</summary>
    public ByteString Request { get; private set; } = ByteString.Empty;

    public ShardId Shard { get; private set; }

    public ulong Generation { get; private set; }

    /// <summary><see cref="ClientRuntime.NowMs"/> at which to give up.</summary>
    public long DeadlineMs { get; private set; }

    /// <summary>The span in which it is made, as in the W3C header; empty if it is in no sampled trace.</summary>
    public string Traceparent { get; set; } = "";

    /// <summary>A node refuses a read whose response is larger; 0 means no limit.</summary>
    public uint ReplyBytesMax { get; set; }

    /// <summary>Whether it waits, was sent or is answered.</summary>
    public ref CallProgress Progress => ref _progress;

    /// <summary>The table in which it has a place, and its id there.</summary>
    public OutstandingCalls? OpenIn { get; set; }

    /// <inheritdoc cref="OpenIn"/>
    public ulong Id { get; set; }

    /// <summary>The share of the places in which it has one or waits for one.</summary>
    public FairPlaces.Share? Share { get; set; }

    /// <summary>There is no other node to try, so it waits for a connection up to its deadline.</summary>
    public bool IsPatient { get; set; }

    public ValueTask<CallAnswer> Answer => new(this, _core.Version);

    public static PendingCall Rent(Method method, ByteString request, ShardId shard, ulong generation, long deadlineMs)
    {
        if (!Pool.TryDequeue(out var call))
            call = new PendingCall();
        call.Method = method;
        call.Request = request;
        call.Shard = shard;
        call.Generation = generation;
        call.DeadlineMs = deadlineMs;
        return call;
    }

    /// <summary>Gives the caller the answer. Called once, by the one that ended its <see cref="Progress"/>.</summary>
    public void SetAnswer(in CallAnswer answer) => _core.SetResult(answer);

    /// <summary>Returns it to the pool. Called by the one that awaited it, after a reply.</summary>
    public void Return()
    {
        _progress.Restart();
        Request = ByteString.Empty;
        (Traceparent, ReplyBytesMax) = ("", 0);
        (IsPatient, Share, OpenIn) = (false, null, null);
        _core.Reset();
        if (Pool.Count < PooledMax)
            Pool.Enqueue(this);
    }

    CallAnswer IValueTaskSource<CallAnswer>.GetResult(short token) => _core.GetResult(token);

    ValueTaskSourceStatus IValueTaskSource<CallAnswer>.GetStatus(short token) => _core.GetStatus(token);

    void IValueTaskSource<CallAnswer>.OnCompleted(Action<object?> continuation, object? state, short token, ValueTaskSourceOnCompletedFlags flags) =>
        _core.OnCompleted(continuation, state, token, flags);
}

/// <summary>The result of one attempt at one node.</summary>
/// <param name="Reply">The node's reply; null if there was none.</param>
/// <param name="Sent">Without a reply: whether the request may have reached the node.</param>
/// <param name="Failure">Without a reply: the reason, in words.</param>
/// <param name="DeadlinePassed">Without a reply: whether the caller's deadline passed.</param>
internal readonly record struct CallAnswer(Reply? Reply, bool Sent, string? Failure, bool DeadlinePassed)
{
    /// <summary>Without a reply: the call had no place on the connection in time, and would probably have one after this time. Null: that is not why.</summary>
    public TimeSpan? PlaceAfter { get; init; }
}
