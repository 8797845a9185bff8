using System.Buffers.Binary;
using Google.Protobuf;
using KvCluster.Client.Runtime;
using KvCluster.Client.Transport;
using KvCluster.V1;
using KvCluster.Wire;
using Status = Google.Rpc.Status;
using StatusCode = Grpc.Core.StatusCode;

namespace KvCluster.Client.Sessions;

/// <summary>
/// This client's sessions in one shard. There is one until a request that stays open for long fills it; then another is opened, up to a few. Thread-safe.
/// </summary>
internal sealed class ShardSessions(ClientSessions all)
{
    /// <summary>Each session costs the shard some memory. If all are full, 32,768 changes of one client wait for a few slow ones.</summary>
    private const int SessionsMax = 8;

    private static readonly ReadOnlyMemory<byte> LeastKey = new byte[1];

    private readonly Lock _lock = new();

    // The callers that wait until it is their turn to open a session or to wait for room, by the client's clock and in the order in which they came.
    private readonly LinkedList<TaskCompletionSource> _turns = [];
    private bool _isTurnTaken;
    private volatile ClientSession[] _sessions = [];
    private TaskCompletionSource? _room;

    /// <summary>Takes an identity from a session that has room, without waiting.</summary>
    public bool TryTake(out RequestTicket ticket)
    {
        foreach (var session in _sessions)
        {
            if (session.TryTake(out var sequence, out var lowestOpen))
            {
                ticket = new RequestTicket(this, session, sequence, lowestOpen);
                return true;
            }
        }
        ticket = default;
        return false;
    }

    /// <summary>Opens a session or waits for room. One caller at a time does this, and the others wait for the result.</summary>
    /// <returns>Null if it is worth trying again. Otherwise why there was no room before the deadline.</returns>
    public async Task<Status?> MakeRoomAsync(ReadOnlyMemory<byte> key, long deadlineMs, CancellationToken cancellationToken)
    {
        if (!await TakeTurnAsync(deadlineMs, cancellationToken).ConfigureAwait(false))
            return CallStatus.DeadlinePassed("other callers were waiting for a session, too");
        try
        {
            // The caller that waited before this one may have opened a session.
            if (HasRoom())
                return null;
            if (_sessions.Length < SessionsMax)
                return await OpenAsync(key, deadlineMs, cancellationToken).ConfigureAwait(false);
            return await WaitForRoomAsync(deadlineMs, cancellationToken).ConfigureAwait(false)
                ? null
                : CallStatus.DeadlinePassed("too many changes of this client were waiting for an answer");
        }
        finally
        {
            PassTurnOn();
        }
    }

    /// <summary>Adds a session that was opened in this shard.</summary>
    public void Add(ClientSession session)
    {
        lock (_lock)
            _sessions = [session, .. _sessions];
    }

    /// <summary>Removes a session that the shard does not know any more.</summary>
    public void Drop(ClientSession session)
    {
        lock (_lock)
            _sessions = [.. _sessions.Where(other => other != session)];
        TellRoom();
    }

    /// <summary>Forgets all sessions and returns them.</summary>
    public ClientSession[] TakeAll()
    {
        lock (_lock)
        {
            var all = _sessions;
            _sessions = [];
            return all;
        }
    }

    /// <summary>Wakes those who wait, because a session has room again or another one may be opened.</summary>
    public void TellRoom() => Interlocked.Exchange(ref _room, null)?.TrySetResult();

    private ClientRuntime Runtime => all.Calls.Runtime;

    private bool HasRoom() => Array.Exists(_sessions, session => session.HasRoom);

    // Returns false if the deadline passed.
    private async Task<bool> TakeTurnAsync(long deadlineMs, CancellationToken cancellationToken)
    {
        LinkedListNode<TaskCompletionSource> turn;
        lock (_lock)
        {
            if (!_isTurnTaken)
                return _isTurnTaken = true;
            turn = _turns.AddLast(Runtime.NewSignal());
        }
        try
        {
            await turn.Value.Task.WaitAsync(Runtime.Left(deadlineMs), Runtime.Time, cancellationToken).ConfigureAwait(false);
            return true;
        }
        catch (TimeoutException)
        {
            return !TryLeave(turn);
        }
        catch (OperationCanceledException) when (!TryLeave(turn))
        {
            // Its turn came at the moment of its cancellation, which takes effect in the call that it makes.
            return true;
        }
    }

    // Returns false if its turn has come before.
    private bool TryLeave(LinkedListNode<TaskCompletionSource> turn)
    {
        lock (_lock)
        {
            if (turn.List is null)
                return false;
            _turns.Remove(turn);
            return true;
        }
    }

    private void PassTurnOn()
    {
        TaskCompletionSource next;
        lock (_lock)
        {
            if (_turns.First is not { } first)
            {
                _isTurnTaken = false;
                return;
            }
            _turns.RemoveFirst();
            next = first.Value;
        }
        next.SetResult();
    }

    private async Task<Status?> OpenAsync(ReadOnlyMemory<byte> key, long deadlineMs, CancellationToken cancellationToken)
    {
        var request = new OpenSessionRequest { Key = ByteString.CopyFrom(KeyAt(key).Span) };
        var reply = await all.Calls.CallAsync(
            Method.OpenSession, request.Key.Memory, request.ToByteString(), deadlineMs, cancellationToken).ConfigureAwait(false);
        if (reply.Error is not null)
            return reply.Error;
        var opened = OpenSessionResponse.Parser.ParseFrom(reply.Response);
        if (opened.Session.Length != WireWriter.SessionBytes)
            return CallStatus.Create(
                StatusCode.Internal, "INTERNAL", $"The node answered with a session of {opened.Session.Length} bytes; nothing was applied.",
                StatusDetails.NotApplied);
        // The map may have changed meanwhile, but the answer names its shard.
        var shard = opened.Position.ShardId;
        all.Of(shard).Add(new ClientSession(
            BinaryPrimitives.ReadUInt128BigEndian(opened.Session.Span), new LineageShard(shard, opened.Position.Lineage), request.Key.Memory));
        return null;
    }

    // A change of a range may begin before all keys, or behind the longest one, and a session is opened by a key. This one is of the same shard, because no
    // shard begins between the two.
    private static ReadOnlyMemory<byte> KeyAt(ReadOnlyMemory<byte> bound) =>
        bound.IsEmpty ? LeastKey : bound[..Math.Min(bound.Length, KvLimits.KeyBytesMax)];

    private async Task<bool> WaitForRoomAsync(long deadlineMs, CancellationToken cancellationToken)
    {
        var room = Runtime.NewSignal();
        Volatile.Write(ref _room, room);
        if (HasRoom() || _sessions.Length < SessionsMax)
            return true;
        try
        {
            await room.Task.WaitAsync(Runtime.Left(deadlineMs), Runtime.Time, cancellationToken).ConfigureAwait(false);
            return true;
        }
        catch (TimeoutException)
        {
            return false;
        }
    }
}
