using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client.Transport;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.V1;
using KvCluster.Wire;
using Status = Google.Rpc.Status;

namespace KvCluster.Router.Api;

/// <summary>
/// Divides the chunks of one BulkLoad stream among their shards, as one Write each. Chunks are under way together if each begins behind the keys of those
/// before it; otherwise one waits for those before it, so that the last value of a key counts. Called by the stream's reader.
/// </summary>
internal sealed class BulkLoadDivision(
    Forwarding forwarding, CallRouter calls, ByteBudget requests, RouterOptions options, ServerCallContext caller, IReplyRoom room)
{
    /// <summary>Completes when all chunks so far are done.</summary>
    private Task _all = Task.CompletedTask;

    /// <summary>What no later chunk may overtake.</summary>
    private Task _barrier = Task.CompletedTask;

    /// <summary>The greatest key of the chunks behind the barrier.</summary>
    private byte[] _greatest = [];

    /// <summary>Forwards a chunk, and returns its acknowledgement or a message with the error.</summary>
    public async Task<MessageBytes> LoadAsync(MessageBytes chunk, ulong number, CancellationToken cancellationToken)
    {
        // The shards' parts are copies.
        var bytes = 2 * chunk.Count;
        if (!requests.TryTake(bytes, bytes <= ByteBudget.SmallBytes))
            return Refused(chunk, KvProxy.RequestsWait);
        var done = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        try
        {
            if (Order(chunk.Written, number, done.Task, out var barrier) is { } refusal)
                return Refused(chunk, refusal);
            await barrier.ConfigureAwait(false);
            var deadlineMs = Deadlines.Of(caller, options.Timeout);
            // Without a map the calls themselves fail and say why.
            await calls.WaitForMapAsync(deadlineMs, cancellationToken).ConfigureAwait(false);
            var parts = Divide(chunk.Written);
            chunk.Return();
            var replies = await Task.WhenAll(parts.Batches.Select(part => ForwardAsync(part, deadlineMs, cancellationToken))).ConfigureAwait(false);
            var answer = MessageBytes.Rent();
            if (ErrorOf(replies) is { } error)
                return Refused(answer, error);
            var acknowledged = new BulkLoadResponse { Chunk = number, Position = WriteResponse.Parser.ParseFrom(replies[parts.Last].Response).Position };
            acknowledged.WriteTo(answer.Append(acknowledged.CalculateSize()));
            return answer;
        }
        catch (MalformedMessageException)
        {
            return Refused(chunk, CallStatus.Invalid("BAD_REQUEST", MalformedMessageException.Text));
        }
        finally
        {
            requests.GiveBack(bytes);
            done.SetResult();
        }
    }

    /// <summary>Reads the keys of a chunk, and finds what it has to wait for.</summary>
    private Status? Order(ReadOnlySpan<byte> chunk, ulong number, Task done, out Task barrier)
    {
        ReadOnlySpan<byte> least = default, greatest = default;
        var (told, entries) = (0ul, 0);
        var reader = new WireReader(chunk);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == BulkLoadRequest.EntriesFieldNumber)
            {
                reader.ReadEntry(out var key, out _);
                if (entries++ == 0 || key.SequenceCompareTo(least) < 0)
                    least = key;
                if (key.SequenceCompareTo(greatest) > 0)
                    greatest = key;
            }
            else if (field == BulkLoadRequest.ChunkFieldNumber)
            {
                told = reader.ReadUInt64();
            }
            else
            {
                reader.Skip();
            }
        }
        if (least.SequenceCompareTo(_greatest) <= 0)
            _barrier = _all;
        barrier = _barrier;
        _all = Task.WhenAll(_all, done);
        _greatest = greatest.ToArray();
        if (told != number)
            return CallStatus.Invalid("BAD_REQUEST", BulkLoadStream.WrongNumber(number, told));
        if (entries == 0)
            return CallStatus.Invalid("BAD_REQUEST", BulkLoadStream.NoEntry);
        return entries <= KvLimits.KeysMax ? null
            : CallStatus.Invalid("TOO_MANY_OPERATIONS", $"A chunk may have at most {KvLimits.KeysMax:N0} entries; nothing of it was applied.");
    }

    private PutParts Divide(ReadOnlySpan<byte> chunk)
    {
        // Encoded as operations, entries take a little more.
        var parts = new PutParts(calls.Table, chunk.Length + (chunk.Length / 8));
        var reader = new WireReader(chunk);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field != BulkLoadRequest.EntriesFieldNumber)
            {
                reader.Skip();
                continue;
            }
            reader.ReadEntry(out var key, out var value);
            parts.Add(key, value);
        }
        return parts;
    }

    private Task<RoutedReply> ForwardAsync(PutBatch part, long deadlineMs, CancellationToken cancellationToken) =>
        forwarding.CallAsync(part.Request, RequestRoute.Of(part), null, deadlineMs, caller.Peer, room, cancellationToken).AsTask();

    /// <summary>The error of a chunk; null if all its parts were applied. A part that was refused does not mean that nothing was applied.</summary>
    private static Status? ErrorOf(RoutedReply[] replies)
    {
        var failed = replies.Where(static reply => reply.Error is not null).Select(static reply => reply.Error!).ToList();
        if (failed.Count == 0)
            return null;
        return failed.Count == replies.Length && !failed.Any(CallStatus.IsUnknown)
            ? failed[0]
            : CallStatus.OutcomeUnknown(
                $"{replies.Length - failed.Count} of {replies.Length} shards applied their part of the chunk; another: {failed[0].Message}");
    }

    private static MessageBytes Refused(MessageBytes message, Status error)
    {
        message.Clear();
        message.Error = error;
        return message;
    }
}
