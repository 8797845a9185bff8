using Grpc.Core;

namespace Grpc.Net.Client.Calls;

/// <summary>One message each way.</summary>
internal sealed class UnaryCall<TRequest, TResponse> : ClientCall
    where TRequest : class
    where TResponse : class
{
    /// <summary>Most responses are small. For a larger one the buffer grows to its size at once.</summary>
    private const int FirstReadBytes = 4096;

    private readonly Method<TRequest, TResponse> _method;
    private readonly UnaryExchange _exchange;

    public UnaryCall(GrpcChannel channel, Method<TRequest, TResponse> method, CallOptions options)
        : this(channel, method, options, channel.Exchanges.Rent())
    {
    }

    private UnaryCall(GrpcChannel channel, Method<TRequest, TResponse> method, CallOptions options, UnaryExchange exchange)
        : base(channel, options, exchange.Cancellation)
    {
        _method = method;
        _exchange = exchange;
    }

    /// <exception cref="RpcException">The call ended with another status than OK.</exception>
    public async Task<TResponse> RunAsync(TRequest request)
    {
        var exchange = _exchange;
        var frames = exchange.Frames;
        try
        {
            exchange.Content.Write(request, _method.RequestMarshaller, Channel.RequestBytesMax);
            var response = await Channel.Http.SendAsync(exchange.Request(Channel, _method, Options), Cancellation).ConfigureAwait(false);
            if (!TakeHeaders(response))
                throw NoMessage();
            var stream = response.Content.ReadAsStream(CancellationToken.None);
            TResponse? message = null;
            while (await stream.ReadAsync(frames.Room(FirstReadBytes, Channel.ResponseBytesMax), Cancellation).ConfigureAwait(false) is > 0 and var count)
            {
                frames.Filled(count);
                if (message is null && frames.TryTake(Channel.ResponseBytesMax, out var payload, out var isCompressed))
                    message = exchange.Payload.Read(isCompressed ? Decompress(payload) : payload, _method.ResponseMarshaller);
                if (message is not null && !frames.IsEmpty)
                    throw new RpcException(new Status(StatusCode.Internal, "More data came after the only message of the response."));
            }
            var isCut = !frames.IsEmpty;
            TakeTrailers();
            if (isCut)
                throw new RpcException(new Status(StatusCode.Internal, "The response ended in the middle of a message."));
            return message ?? throw NoMessage();
        }
        catch (Exception failure) when (Ended is null)
        {
            throw Fail(failure);
        }
    }

    protected override void OnEnded(bool isInOrder, bool isCancelled)
    {
        if (isInOrder && !isCancelled && _exchange.TryReset(Options))
            Channel.Exchanges.Return(_exchange);
    }

    private static RpcException NoMessage() => new(new Status(StatusCode.Internal, "The call ended with OK but without its message."));
}
