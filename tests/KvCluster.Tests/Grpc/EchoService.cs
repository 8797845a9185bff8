using Google.Protobuf;
using Grpc.Core;
using KvCluster.Tests.Grpc.Proto;

namespace KvCluster.Tests.Grpc;

/// <summary>The C# side of echo.proto.</summary>
internal sealed class EchoService : Echo.EchoBase
{
    private int _open;
    private int _cancelled;

    /// <summary>Breaks all connections. The payload "die" calls it.</summary>
    public Action Die { get; set; } = () => { };

    /// <summary>Every unary handler waits for this and ignores its cancellation.</summary>
    public Task Held { get; set; } = Task.CompletedTask;

    /// <summary>The number of calls whose handler has not returned.</summary>
    public int Open => Volatile.Read(ref _open);

    /// <summary>The number of calls whose handler saw its cancellation.</summary>
    public int Cancelled => Volatile.Read(ref _cancelled);

    public override Task<EchoReply> Unary(EchoRequest request, ServerCallContext context) => Track(context, async () =>
    {
        await EchoMetadata(context);
        await Held;
        await Delay(request, context);
        ThrowAsOrdered(request);
        return Reply(request);
    });

    public override Task ServerStream(EchoRequest request, IServerStreamWriter<EchoReply> responseStream, ServerCallContext context) =>
        Track(context, async () =>
        {
            await EchoMetadata(context);
            await Replies(request, responseStream, context);
            return true;
        });

    public override Task<EchoReply> ClientStream(IAsyncStreamReader<EchoRequest> requestStream, ServerCallContext context) => Track(context, async () =>
    {
        await EchoMetadata(context);
        using var all = new MemoryStream();
        await foreach (var request in requestStream.ReadAllAsync())
        {
            await Delay(request, context);
            ThrowAsOrdered(request);
            request.Payload.WriteTo(all);
        }
        return new EchoReply { Payload = ByteString.CopyFrom(all.ToArray()) };
    });

    public override Task Duplex(IAsyncStreamReader<EchoRequest> requestStream, IServerStreamWriter<EchoReply> responseStream, ServerCallContext context) =>
        Track(context, async () =>
        {
            await EchoMetadata(context);
            await foreach (var request in requestStream.ReadAllAsync())
                await Replies(request, responseStream, context);
            return true;
        });

    private async Task<T> Track<T>(ServerCallContext context, Func<Task<T>> handler)
    {
        Interlocked.Increment(ref _open);
        try
        {
            return await handler();
        }
        finally
        {
            if (context.CancellationToken.IsCancellationRequested)
                Interlocked.Increment(ref _cancelled);
            Interlocked.Decrement(ref _open);
        }
    }

    private async Task Replies(EchoRequest request, IServerStreamWriter<EchoReply> responses, ServerCallContext context)
    {
        for (var i = 0; i < (request.NoReply ? 0 : Math.Max(1, request.ReplyCount)); i++)
        {
            await Delay(request, context);
            await responses.WriteAsync(Reply(request));
        }
        if (request.NoReply)
            await Delay(request, context);
        if (request.Die)
            Die();
        ThrowAsOrdered(request);
    }

    private static EchoReply Reply(EchoRequest request) =>
        new() { Payload = request.ReplyBytes == 0 ? request.Payload : ByteString.CopyFrom(new byte[request.ReplyBytes]) };

    private static async Task Delay(EchoRequest request, ServerCallContext context)
    {
        if (request.DelayMs > 0)
            await Task.Delay((int)request.DelayMs, context.CancellationToken);
    }

    private static void ThrowAsOrdered(EchoRequest request)
    {
        if (request.StatusCode != 0)
            throw new RpcException(new Status((StatusCode)request.StatusCode, request.StatusMessage));
    }

    /// <summary>Returns "x-echo-initial" in the headers and "x-echo-trailing-bin" in the trailers.</summary>
    private static async Task EchoMetadata(ServerCallContext context)
    {
        if (context.RequestHeaders.GetValueBytes("x-echo-trailing-bin") is { } trailing)
            context.ResponseTrailers.Add("x-echo-trailing-bin", trailing);
        if (context.RequestHeaders.GetValue("x-echo-initial") is { } initial)
            await context.WriteResponseHeadersAsync(new Metadata { { "x-echo-initial", initial } });
    }
}
