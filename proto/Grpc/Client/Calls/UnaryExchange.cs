// What a unary call needs from HttpClient and its buffers: lent by the channel to one call after the other, because together they cost
// more than a call. A call gives it back only when it ended in order, so that HTTP holds nothing of it any more; otherwise it is left to
// the collector.
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

    /// <summary>The response's messages. Changes as it is used: always reached through here.</summary>
    public ResponseFrames Frames { get; } = new();

    /// <summary>The request, with the headers of this call.</summary>
    public HttpRequestMessage Request(GrpcChannel channel, IMethod method, CallOptions options)
    {
        if (!ReferenceEquals(_method, method))
            _request.RequestUri = channel.AddressOf(method);
        _method = method;
        RequestMessage.AddHeaders(_request, options);
        return _request;
    }

    /// <summary>Makes ready for the next call; false: it cannot be used again.</summary>
    public bool TryReset(CallOptions options)
    {
        if (!Content.IsSent || !Cancellation.TryReset())
            return false;
        Frames.Clear();
        // What a call or a handler added, metadata or a trace's headers, must not go with the next one.
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
