namespace Grpc.Net.Client.Calls;

/// <summary>The exchanges of a channel that no call uses; the one used last is given out first. Any thread.</summary>
internal sealed class UnaryExchangePool
{
    /// <summary>As many as calls are usually open on a channel; they keep about 5 KiB each, 1 MiB in all.</summary>
    private const int CountMax = 256;

    private readonly Lock _gate = new();
    private readonly UnaryExchange[] _exchanges = new UnaryExchange[CountMax];
    private int _count;

    public UnaryExchange Rent()
    {
        lock (_gate)
        {
            if (_count > 0)
                return _exchanges[--_count];
        }
        return new UnaryExchange();
    }

    public void Return(UnaryExchange exchange)
    {
        lock (_gate)
        {
            if (_count < CountMax)
                _exchanges[_count++] = exchange;
        }
    }
}
