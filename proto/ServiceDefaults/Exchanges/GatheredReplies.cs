using System.Diagnostics.CodeAnalysis;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Wire;

namespace KvCluster.ServiceDefaults.Exchanges;

/// <summary>
/// The replies of one exchange that are not written yet, collected in messages, and the bytes that they take: within the bounds of <see cref="ExchangeLimits"/>
/// and the budget of the process. Used under the exchange's lock.
/// </summary>
/// <param name="process">The replies of all calls of the process.</param>
internal sealed class GatheredReplies(ByteBudget process)
{
    private readonly Queue<MessageBytes> _full = new();
    private MessageBytes _gathering = MessageBytes.Rent();
    private StreamBudget _bytes = new(process);

    public bool IsEmpty => _gathering.Count == 0 && _full.Count == 0;

    /// <summary>Number of bytes of the replies that are not written.</summary>
    public long Bytes => _bytes.Used;

    /// <summary>Whether another call may be started. While the process is short of memory a stream has one message of replies at a time.</summary>
    public bool HasRoom => _bytes.Used < (process.IsShort ? 1 : ExchangeLimits.WaitingBytesMax);

    /// <summary>Takes space for a reply. False if there is none; an outcome always has space.</summary>
    public bool TryUse(int bytes)
    {
        if (bytes <= ExchangeLimits.OutcomeBytesMax)
        {
            Use(bytes);
            return true;
        }
        // A single reply may always exceed the stream's bound, and small replies are not refused because of large ones.
        return (_bytes.Used == 0 || bytes <= ByteBudget.SmallBytes || _bytes.Used + bytes <= ExchangeLimits.ReplyBytesMax) && _bytes.TryUse(bytes);
    }

    /// <summary>Takes space for a reply that is always written: a refusal, or the outcome of a change.</summary>
    public void Use(int bytes) => _bytes.Use(bytes);

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
