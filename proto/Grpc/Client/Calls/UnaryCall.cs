using Grpc.Core;
using Grpc.Shared;

namespace Grpc.Net.Client.Calls;

/// <summary>One message each way.</summary>
internal sealed class UnaryCall<TRequest, TResponse>(GrpcChannel channel, Method<TRequest, TResponse> method, CallOptions options)
    : ClientCall(channel, method, options)
    where TRequest : class
    where TResponse : class
{
    /// <summary>Most answers are small; larger ones make the buffer grow at once to their size.</summary>
    private const int FirstReadBytes = 4096;

    private readonly SingleMessageContent _content = new();

    /// <exception cref="RpcException">The call ended with another status than OK.</exception>
    public async Task<TResponse> RunAsync(TRequest request)
    {
        var frames = new ResponseFrames(Channel.ResponseBytesMax);
        try
        {
            _content.Write(request, method.RequestMarshaller, Channel.RequestBytesMax);
            var response = await Channel.Http.SendAsync(CreateRequest(_content), Cancellation).ConfigureAwait(false);
            if (!TakeHeaders(response))
                throw NoMessage();
            var stream = response.Content.ReadAsStream(CancellationToken.None);
            TResponse? message = null;
            while (await stream.ReadAsync(frames.Room(FirstReadBytes), Cancellation).ConfigureAwait(false) is > 0 and var count)
            {
                frames.Filled(count);
                if (message is null && frames.TryTake(out var payload, out var isCompressed))
                    message = new FramePayload().Read(payload, isCompressed, ResponseEncoding, Channel.ResponseBytesMax, method.ResponseMarshaller);
                if (message is not null && !frames.IsEmpty)
                    throw new RpcException(new Status(StatusCode.Internal, "More data came after the only message of the response."));
            }
            var isCut = !frames.IsEmpty;
            frames.Free();
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

    protected override void OnEnded(bool isInOrder)
    {
        if (isInOrder && GetStatus().StatusCode == StatusCode.OK)
            _content.Free();
    }

    private static RpcException NoMessage() => new(new Status(StatusCode.Internal, "The call ended with OK and without its message."));
}
