using System.Threading.Channels;
using Google.Protobuf;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// The next message of a stream: as many calls of the queue as it has room for. The message and what is in it are used again for each further one. Used by one
/// thread at a time.
/// </summary>
/// <param name="queue">What is to be sent.</param>
/// <param name="open">The calls that wait to be sent or for a reply.</param>
internal sealed class GatheredCalls(ChannelReader<CallStream.Entry> queue, OutstandingCalls open)
{
    private const int CallsPerMessageMax = 512;
    private const int MessageBytes = 256 << 10;

    // Those of the largest message so far, in their order there.
    private readonly List<Call> _calls = [];

    /// <summary>What was gathered.</summary>
    public ExchangeRequest Message { get; } = new();

    /// <summary>Takes calls from the queue. Returns false if there is nothing to send.</summary>
    public bool TryGather()
    {
        var now = Environment.TickCount64;
        for (var bytes = 0;
            bytes < MessageBytes && Message.Calls.Count + Message.Cancelled.Count < CallsPerMessageMax && queue.TryRead(out var entry);)
        {
            if (entry.Call is not { } call)
            {
                Message.Cancelled.Add(entry.GivenUp);
                continue;
            }
            if (!call.Progress.TrySend())
            {
                open.Withdraw(call.Id);
                continue;
            }
            Add(call, now);
            bytes += call.Request.Length;
        }
        return Message.Calls.Count > 0 || Message.Cancelled.Count > 0;
    }

    /// <summary>Empties the message. To be called when it has been written, because a stream may then be idle for long, and a request may be large.</summary>
    public void Clear()
    {
        foreach (var call in Message.Calls)
            (call.Request, call.Traceparent) = (ByteString.Empty, "");
        Message.Calls.Clear();
        Message.Cancelled.Clear();
    }

    private void Add(PendingCall pending, long now)
    {
        if (Message.Calls.Count == _calls.Count)
            _calls.Add(new Call());
        var call = _calls[Message.Calls.Count];
        call.Id = pending.Id;
        call.Method = pending.Method;
        call.Request = pending.Request;
        call.TimeoutMs = (uint)Math.Clamp(pending.DeadlineMs - now, 1, uint.MaxValue);
        call.ShardId = pending.Shard;
        call.Generation = pending.Generation;
        call.Traceparent = pending.Traceparent;
        call.ReplyBytesMax = pending.ReplyBytesMax;
        Message.Calls.Add(call);
    }
}
