// The objects that a unary call needs for HttpClient, and its buffers. The channel lends them to one call after the other, because together they cost more
// than a call. A call returns them only if it ended in order, so that HttpClient does not use them any more. Otherwise they are left to the garbage
// collector.
using Grpc.Core;
using Grpc.Shared;

namespace Grpc.Net.Client.Calls;

/// <summary>A request message, its content, a response buffer and a cancellation source.</summary>
internal sealed class UnaryExchange
{
    private HttpRequestMessage _request;
    private IMethod? _method;

    public UnaryExchange() => _request = RequestMessage.Create(Content);

    public SingleMessageContent Content { get; } = new();

    public FramePayload Payload { get; } = new();

    public CancellationTokenSource Cancellation { get; } = new();

    /// <summary>The response's messages.</summary>
    public ResponseFrames Frames { get; } = new();

    /// <summary>Returns the request with the headers of this call.</summary>
    public HttpRequestMessage Request(GrpcChannel channel, IMethod method, CallOptions options)
    {
        if (!ReferenceEquals(_method, method))
            _request.RequestUri = channel.AddressOf(method);
        _method = method;
        RequestMessage.AddHeaders(_request, options);
        return _request;
    }

    /// <summary>Prepares for the next call; returns false if it cannot be used again.</summary>
    public bool TryReset(CallOptions options)
    {
        if (!Content.IsSent || !Cancellation.TryReset())
            return false;
        Frames.Clear();
        // What a call or a handler added, such as metadata or trace headers, must not be sent with the next call.
        if (options.Deadline is not null)
            _request.Headers.Remove(RequestMessage.Timeout);
        if (!RequestMessage.HasOnlyCommonHeaders(_request))
        {
            _request = RequestMessage.Create(Content);
            _method = null;
        }
        return true;
    }
}
