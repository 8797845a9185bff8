using KvCluster.Wire;

namespace KvCluster.Client.Sessions;

/// <summary>
/// One session of this client in a shard. It assigns sequences to requests and tracks which of them are open. Serves many requests at once; thread-safe.
/// </summary>
internal sealed class ClientSession(UInt128 id, LineageShard shard, ReadOnlyMemory<byte> key)
{
    /// <summary>The number of requests that may be open at once, because a shard keeps this many results (kv.proto, RequestId).</summary>
    public const int OpenMax = 4_096;

    private readonly Lock _lock = new();
    private readonly bool[] _settled = new bool[OpenMax];
    private ulong _next = 1;
    private ulong _lowestOpen = 1;

    /// <summary>The session's id. Whoever knows it can make changes in the session, so it must not be used except in requests.</summary>
    public UInt128 Id { get; } = id;

    /// <summary>The shard in which it was opened, and the lineage.</summary>
    public LineageShard Shard { get; } = shard;

    /// <summary>A key of the shard, by which calls about the session are routed.</summary>
    public ReadOnlyMemory<byte> Key { get; } = key;

    /// <summary>Whether <see cref="TryTake"/> would succeed now.</summary>
    public bool HasRoom
    {
        get
        {
            lock (_lock)
                return _next - _lowestOpen < OpenMax;
        }
    }

    /// <summary>Takes the next sequence. Returns false if the maximum number of requests, counted from the lowest open one, is reached.</summary>
    public bool TryTake(out ulong sequence, out ulong lowestOpen)
    {
        lock (_lock)
        {
            (sequence, lowestOpen) = (_next, _lowestOpen);
            if (_next - _lowestOpen >= OpenMax)
                return false;
            _next++;
            return true;
        }
    }

    /// <summary>Marks a request as settled, because nobody waits for its outcome any more. Returns true if this made room in a full session.</summary>
    public bool Settle(ulong sequence)
    {
        lock (_lock)
        {
            var wasFull = _next - _lowestOpen >= OpenMax;
            _settled[sequence % OpenMax] = true;
            while (_lowestOpen < _next && _settled[_lowestOpen % OpenMax])
                _settled[_lowestOpen++ % OpenMax] = false;
            return wasFull && _next - _lowestOpen < OpenMax;
        }
    }
}
