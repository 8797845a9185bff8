using Grpc.Shared;

namespace Grpc.Net.Client;

/// <summary>Options of a channel.</summary>
internal sealed class GrpcChannelOptions
{
    /// <summary>
    /// Sends the calls: a <see cref="SocketsHttpHandler"/> with TLS and client certificates in its <c>SslOptions</c>, keep-alive pings and connection limits.
    /// If null, the channel creates a handler and disposes it.
    /// </summary>
    public HttpMessageHandler? HttpHandler { get; set; }

    /// <summary>Whether the channel disposes <see cref="HttpHandler"/>.</summary>
    public bool DisposeHttpClient { get; set; }

    /// <summary>Largest response message in bytes. The default is 4 MiB, as in every gRPC implementation; null means no limit.</summary>
    public int? MaxReceiveMessageSize { get; set; } = FrameFormat.MessageBytesMaxDefault;

    /// <summary>Largest request message in bytes; null, the default, means no limit.</summary>
    public int? MaxSendMessageSize { get; set; }
}
