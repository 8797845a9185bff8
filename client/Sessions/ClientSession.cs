namespace KvCluster.Client.Sessions;

/// <summary>
/// One session of this client in a shard: gives its requests their sequences and keeps track of which are open. Serves many requests at
/// once; thread-safe.
/// </summary>
internal sealed class ClientSession(UInt128 id, uint shard)
{
    /// <summary>Requests that may be open at once: what a shard keeps results of (kv.proto, RequestId).</summary>
    public const int OpenMax = 4_096;

    private readonly Lock _lock = new();
    private readonly bool[] _settled = new bool[OpenMax];
    private ulong _next = 1;
    private ulong _lowestOpen = 1;

    /// <summary>Whoever knows it can make changes of the session: it goes nowhere but into requests.</summary>
    public UInt128 Id { get; } = id;

    /// <summary>The shard that it was opened in.</summary>
    public uint Shard { get; } = shard;

    /// <summary>Whether <see cref="TryTake"/> would give a sequence now.</summary>
    public bool HasRoom
    {
        get
        {
            lock (_lock)
                return _next - _lowestOpen < OpenMax;
        }
    }

    /// <summary>Takes the next sequence; false when as many are open as may be, counted from the lowest.</summary>
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

    /// <summary>Nobody waits for this request's outcome any more. True: another one has room now that had none.</summary>
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
