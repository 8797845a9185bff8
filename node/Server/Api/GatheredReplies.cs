using System.Diagnostics.CodeAnalysis;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Wire;

namespace KvCluster.Node.Api;

/// <summary>
/// The replies of one exchange that are not written yet, collected in messages, with what they take of the process's budget. Used under the exchange's lock.
/// </summary>
/// <param name="budget">The replies of all calls of the process.</param>
internal sealed class GatheredReplies(ByteBudget budget)
{
    private readonly Queue<MessageBytes> _full = new();
    private MessageBytes _gathering = MessageBytes.Rent();
    private StreamBudget _bytes = new(budget);

    public bool IsEmpty => _gathering.Count == 0 && _full.Count == 0;

    /// <summary>Whether another call may be started. While the process is short of memory a stream has one message of replies at a time.</summary>
    public bool HasRoom => _bytes.Used < (budget.IsShort ? 1 : ExchangeLimits.WaitingBytesMax);

    /// <summary>Takes space for a reply. False if there is none; an outcome always has space.</summary>
    public bool TryUse(int bytes)
    {
        if (bytes <= ExchangeLimits.OutcomeBytesMax)
        {
            _bytes.Use(bytes);
            return true;
        }
        // A single reply may always exceed the stream's bound, and small replies are not refused because of large ones.
        return (_bytes.Used == 0 || bytes <= ByteBudget.SmallBytes || _bytes.Used + bytes <= ExchangeLimits.ReplyBytesMax) && _bytes.TryUse(bytes);
    }

    /// <summary>Where a reply is to be written for which space was taken. The caller must fill all of it.</summary>
    public Span<byte> Append(int bytes)
    {
        if (_gathering.Count > 0 && _gathering.Count + bytes > ExchangeLimits.MessageBytesMax)
        {
            _full.Enqueue(_gathering);
            _gathering = MessageBytes.Rent();
        }
        return _gathering.Append(bytes);
    }

    /// <summary>Takes the oldest message. Its bytes are held until <see cref="Written"/>.</summary>
    public bool TryTake([MaybeNullWhen(false)] out MessageBytes message)
    {
        if (_full.TryDequeue(out message))
            return true;
        if (_gathering.Count == 0)
            return false;
        message = _gathering;
        _gathering = MessageBytes.Rent();
        return true;
    }

    /// <summary>A message was written.</summary>
    public void Written(int bytes) => _bytes.Free(bytes);

    /// <summary>The stream broke: drops all replies, also those being written.</summary>
    public void Clear()
    {
        _gathering.Clear();
        _full.Clear();
        _bytes.Free(_bytes.Used);
    }
}
