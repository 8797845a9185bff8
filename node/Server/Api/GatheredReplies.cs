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
    private ReplyRoom _room = new(budget);

    public bool IsEmpty => _gathering.Count == 0 && _full.Count == 0;

    /// <inheritdoc cref="ReplyRoom.HasRoom"/>
    public bool HasRoom => _room.HasRoom;

    /// <inheritdoc cref="ReplyRoom.TryUse"/>
    public bool TryUse(int bytes) => _room.TryUse(bytes);

    /// <inheritdoc cref="ReplyRoom.Use"/>
    public void Use(int bytes) => _room.Use(bytes);

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
    public void Written(int bytes) => _room.Free(bytes);

    /// <summary>The stream broke: drops all replies, also those being written.</summary>
    public void Clear()
    {
        _gathering.Clear();
        _full.Clear();
        _room.Clear();
    }
}
