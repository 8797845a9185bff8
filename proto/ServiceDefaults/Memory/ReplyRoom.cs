// How many bytes of replies an exchange may hold, the same at a node and at a router. Used under the exchange's lock.
namespace KvCluster.ServiceDefaults.Memory;

/// <summary>
/// The bytes of an exchange's replies that are not written yet, within the bounds of <see cref="ExchangeLimits"/> and the budget of the process.
/// </summary>
/// <param name="process">The replies of all calls of the process.</param>
internal struct ReplyRoom(ByteBudget process)
{
    private StreamBudget _bytes = new(process);

    /// <summary>Number of bytes of the replies that are not written.</summary>
    public readonly long Used => _bytes.Used;

    /// <summary>Whether another call may be started. While the process is short of memory a stream has one message of replies at a time.</summary>
    public readonly bool HasRoom => _bytes.Used < (process.IsShort ? 1 : ExchangeLimits.WaitingBytesMax);

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

    /// <summary>Replies of these bytes were written.</summary>
    public void Free(long bytes) => _bytes.Free(bytes);

    /// <summary>The stream broke, so nothing waits to be written any more.</summary>
    public void Clear() => _bytes.Free(_bytes.Used);
}
