using System.Buffers.Binary;
using System.Collections.Concurrent;
using Google.Protobuf;
using KvCluster.Client.Routing;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.V1;
using KvCluster.Wire;
using Status = Google.Rpc.Status;

namespace KvCluster.Client.Sessions;

/// <summary>The sessions of one client, by shard. One is opened with the first change of a shard. Thread-safe.</summary>
internal sealed class ClientSessions(CallRouter calls)
{
    /// <summary>
    /// How long a client that is disposed waits for the ends of its sessions: for an answer of a cluster that is there, and not for an election. Sessions
    /// that are left end when they have been silent for long.
    /// </summary>
    private static readonly TimeSpan EndsWithin = TimeSpan.FromSeconds(1);

    private readonly ConcurrentDictionary<ShardId, ShardSessions> _shards = new();

    /// <summary>The calls through which sessions are opened.</summary>
    public CallRouter Calls { get; } = calls;

    /// <summary>The sessions in one shard.</summary>
    public ShardSessions Of(ShardId shard) => _shards.TryGetValue(shard, out var sessions) ? sessions : _shards.GetOrAdd(shard, _ => new ShardSessions(this));

    /// <summary>Takes an identity for a change of a key, if a session is open and has room.</summary>
    public bool TryTake(KeyPlace place, out RequestTicket ticket)
    {
        ticket = default;
        return place.Shard != RouteTable.NoShard && Of(place.Shard).TryTake(out ticket);
    }

    /// <summary>Takes an identity for a change of a key. Returns an error if there is none before the deadline; nothing was applied then.</summary>
    public async Task<(RequestTicket Ticket, Status? Error)> TakeAsync(ReadOnlyMemory<byte> key, long deadlineMs, CancellationToken cancellationToken)
    {
        RequestTicket ticket;
        while (!TryTake(Calls.Table.PlaceOf(key.Span), out ticket))
        {
            if (!Calls.Table.IsKnown && !await Calls.WaitForMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false))
                return (default, Calls.MapError);
            if (Calls.Runtime.NowMs >= deadlineMs)
                return (default, CallStatus.DeadlinePassed("no session could be opened"));
            var shard = Calls.Table.Find(key.Span)?.ShardId ?? default;
            if (await Of(shard).MakeRoomAsync(key, deadlineMs, cancellationToken).ConfigureAwait(false) is { } error)
                return (default, error);
        }
        return (ticket, null);
    }

    /// <summary>
    /// Ends all sessions, as far as their shards answer soon. A shard keeps some thousands of sessions and each until it has been silent for a minute, so a
    /// program that makes a client for each of its calls would fill it. A simulated client does nothing, because its time has ended when it is disposed.
    /// </summary>
    public Task EndAllAsync()
    {
        if (Calls.Runtime != ClientRuntime.Machine)
            return Task.CompletedTask;
        var deadlineMs = Calls.Runtime.NowMs + (long)EndsWithin.TotalMilliseconds;
        return Task.WhenAll(_shards.Values.SelectMany(static shard => shard.TakeAll()).Select(session => EndAsync(session, deadlineMs)));
    }

    private async Task EndAsync(ClientSession session, long deadlineMs)
    {
        var id = new byte[WireWriter.SessionBytes];
        BinaryPrimitives.WriteUInt128BigEndian(id, session.Id);
        var request = new EndSessionRequest { Key = UnsafeByteOperations.UnsafeWrap(session.Key), Session = UnsafeByteOperations.UnsafeWrap(id) };
        // The result is ignored, because nothing depends on whether the session has ended.
        await Calls.CallAsync(Method.EndSession, session.Key, request.ToByteString(), deadlineMs, CancellationToken.None).ConfigureAwait(false);
    }
}
