using System.Collections.Concurrent;
using KvCluster.Client.Transport;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Sessions;

/// <summary>The sessions of one client, by shard. One is opened with the first change of a shard. Thread-safe.</summary>
internal sealed class ClientSessions(CallRouter calls)
{
    private readonly ConcurrentDictionary<ShardId, ShardSessions> _shards = new();

    /// <summary>The calls through which sessions are opened.</summary>
    public CallRouter Calls { get; } = calls;

    /// <summary>The sessions in one shard.</summary>
    public ShardSessions Of(ShardId shard) => _shards.TryGetValue(shard, out var sessions) ? sessions : _shards.GetOrAdd(shard, _ => new ShardSessions(this));

    /// <summary>Takes an identity for a change of a key, if a session is open and has room.</summary>
    public bool TryTake(ReadOnlySpan<byte> key, out RequestTicket ticket)
    {
        ticket = default;
        return Calls.Table.Find(key) is { } route && Of(route.ShardId).TryTake(out ticket);
    }

    /// <summary>Takes an identity for a change of a key. Returns an error if there is none before the deadline; nothing was applied then.</summary>
    public async Task<(RequestTicket Ticket, Status? Error)> TakeAsync(ReadOnlyMemory<byte> key, long deadlineMs, CancellationToken cancellationToken)
    {
        RequestTicket ticket;
        while (!TryTake(key.Span, out ticket))
        {
            if (!Calls.Table.IsKnown && !await Calls.WaitForMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false))
                return (default, CallStatus.Unavailable(Calls.MapFailure));
            if (Calls.Runtime.NowMs >= deadlineMs)
                return (default, CallStatus.DeadlinePassed("no session could be opened"));
            var shard = Calls.Table.Find(key.Span)?.ShardId ?? default;
            if (await Of(shard).MakeRoomAsync(key, deadlineMs, cancellationToken).ConfigureAwait(false) is { } error)
                return (default, error);
        }
        return (ticket, null);
    }
}
