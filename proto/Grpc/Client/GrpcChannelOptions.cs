using Grpc.Shared;

namespace Grpc.Net.Client;

/// <summary>What a channel is made with.</summary>
internal sealed class GrpcChannelOptions
{
    /// <summary>
    /// Carries the calls: a <see cref="SocketsHttpHandler"/> with TLS and client certificates in its <c>SslOptions</c>, keep-alive
    /// pings, connection limits. Null: one that the channel makes for itself and disposes.
    /// </summary>
    public HttpMessageHandler? HttpHandler { get; set; }

    /// <summary>Whether the channel disposes <see cref="HttpHandler"/>.</summary>
    public bool DisposeHttpClient { get; set; }

    /// <summary>Largest response message in bytes. 4 MiB by default, as everywhere in gRPC; null: no limit.</summary>
    public int? MaxReceiveMessageSize { get; set; } = FrameFormat.MessageBytesMaxDefault;

    /// <summary>Largest request message in bytes; null, the default: no limit.</summary>
    public int? MaxSendMessageSize { get; set; }
}
