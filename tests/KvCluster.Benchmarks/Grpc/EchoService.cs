using Grpc.Core;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>The echo service as nodes serve theirs, bound as generated code would bind it.</summary>
[BindServiceMethod(typeof(EchoService), nameof(BindService))]
internal sealed class EchoService
{
    public static void BindService(ServiceBinderBase binder, EchoService service)
    {
        binder.AddMethod(EchoMethods.Unary, service.Unary);
        binder.AddMethod(EchoMethods.Duplex, service.Duplex);
    }

    private Task<byte[]> Unary(byte[] request, ServerCallContext context) => Task.FromResult(request);

    private async Task Duplex(IAsyncStreamReader<byte[]> requests, IServerStreamWriter<byte[]> responses, ServerCallContext context)
    {
        while (await requests.MoveNext(CancellationToken.None).ConfigureAwait(false))
            await responses.WriteAsync(requests.Current).ConfigureAwait(false);
    }
}
