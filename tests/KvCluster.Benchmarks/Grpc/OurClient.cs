using Grpc.Net.Client;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>Our client, as generated stubs use it.</summary>
internal sealed class OurClient(int port) : IEchoClient
{
    private readonly GrpcChannel _channel = GrpcChannel.ForAddress($"http://127.0.0.1:{port}");

    public async Task CallAsync(EchoCount count, CancellationToken stop)
    {
        var invoker = _channel.Calls();
        while (!stop.IsCancellationRequested)
        {
            await invoker.AsyncUnaryCall(EchoMethods.Unary, null, default, EchoMethods.Payload).ConfigureAwait(false);
            count.Add(1);
        }
    }

    public async Task ExchangeAsync(int callers, EchoCount count, CancellationToken stop)
    {
        using var call = _channel.Calls().AsyncDuplexStreamingCall(EchoMethods.Duplex, null, default);
        for (var i = 0; i < callers; i++)
            await call.RequestStream.WriteAsync(EchoMethods.Payload).ConfigureAwait(false);
        while (!stop.IsCancellationRequested && await call.ResponseStream.MoveNext(CancellationToken.None).ConfigureAwait(false))
        {
            count.Add(1);
            await call.RequestStream.WriteAsync(EchoMethods.Payload).ConfigureAwait(false);
        }
    }

    public void Dispose() => _channel.Dispose();
}
