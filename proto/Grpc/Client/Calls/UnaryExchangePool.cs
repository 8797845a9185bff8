namespace Grpc.Net.Client.Calls;

/// <summary>The unused exchanges of a channel; the one used last is rented first. Any thread.</summary>
internal sealed class UnaryExchangePool
{
    /// <summary>About as many as calls are usually open on a channel. They keep about 5 KiB each, 1 MiB in total.</summary>
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
