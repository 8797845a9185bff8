namespace KvCluster.Benchmarks.Grpc;

/// <summary>One connection for echo calls.</summary>
internal interface IEchoClient : IDisposable
{
    /// <summary>One caller, which makes unary calls one after the other until stopped.</summary>
    Task CallAsync(EchoCount count, CancellationToken stop);

    /// <summary>One duplex stream with this many callers, each of which sends its next item when it has its echo, until stopped.</summary>
    Task ExchangeAsync(int callers, EchoCount count, CancellationToken stop);
}
