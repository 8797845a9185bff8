using Grpc.Net.Client;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>Our client, as generated stubs use it.</summary>
internal sealed class OurClient(int port) : IEchoClient
{
    private readonly GrpcChannel _channel = GrpcChannel.ForAddress($"http://127.0.0.1:{port}");
    private readonly byte[] _payload = new byte[EchoMethods.PayloadBytes];

    public async Task CallAsync(EchoCount count, CancellationToken stop)
    {
        var invoker = _channel.CreateCallInvoker();
        while (!stop.IsCancellationRequested)
        {
            var reply = await invoker.AsyncUnaryCall(EchoMethods.Unary, null, default, _payload).ConfigureAwait(false);
            Check(reply);
            count.Add(1);
        }
    }

    public async Task ExchangeAsync(int callers, EchoCount count, CancellationToken stop)
    {
        using var call = _channel.CreateCallInvoker().AsyncDuplexStreamingCall(EchoMethods.Duplex, null, default);
        for (var i = 0; i < callers; i++)
            await call.RequestStream.WriteAsync(_payload).ConfigureAwait(false);
        while (!stop.IsCancellationRequested && await call.ResponseStream.MoveNext(CancellationToken.None).ConfigureAwait(false))
        {
            Check(call.ResponseStream.Current);
            count.Add(1);
            await call.RequestStream.WriteAsync(_payload).ConfigureAwait(false);
        }
    }

    public void Dispose() => _channel.Dispose();

    private static void Check(byte[] reply)
    {
        if (reply.Length != EchoMethods.PayloadBytes)
            throw new InvalidDataException($"An echo of {reply.Length} bytes.");
    }
}
