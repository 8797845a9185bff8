// A client's channel to one server. Thread-safe; it should live as long as the process talks to that server. SocketsHttpHandler makes connections with the
// first call and again after they are lost.
using System.Collections.Concurrent;
using System.Net;
using Grpc.Core;
using Grpc.Net.Client.Calls;
using Grpc.Shared;

namespace Grpc.Net.Client;

/// <summary>Calls to one address over HTTP/2: in plain text (h2c) for http, with TLS for https.</summary>
internal sealed class GrpcChannel : ChannelBase, IDisposable
{
    private readonly bool _ownsHandler;
    private readonly CallInvoker _invoker;
    private readonly ConcurrentDictionary<string, Uri> _methodAddresses = new(StringComparer.Ordinal);
    private readonly CancellationTokenSource _disposed = new();

    private GrpcChannel(Uri address, GrpcChannelOptions options)
        : base(address.Authority)
    {
        Address = address;
        RequestBytesMax = options.MaxSendMessageSize ?? int.MaxValue;
        ResponseBytesMax = options.MaxReceiveMessageSize ?? int.MaxValue;
        _ownsHandler = options.HttpHandler is null || options.DisposeHttpClient;
        Http = new HttpMessageInvoker(options.HttpHandler ?? DefaultHandler(), _ownsHandler);
        _invoker = new HttpCallInvoker(this);
    }

    /// <summary>Scheme, host and port.</summary>
    public Uri Address { get; }

    internal HttpMessageInvoker Http { get; }

    internal int RequestBytesMax { get; }

    internal int ResponseBytesMax { get; }

    /// <summary>Exchanges of unary calls that have ended, for reuse by the next ones.</summary>
    internal UnaryExchangePool Exchanges { get; } = new();

    /// <summary>Cancelled when the channel is disposed. It ends streams, which would not end by themselves.</summary>
    internal CancellationToken Disposed => _disposed.Token;

    /// <exception cref="ArgumentException">The address is not an http or https address.</exception>
    public static GrpcChannel ForAddress(string address) => ForAddress(address, new GrpcChannelOptions());

    /// <inheritdoc cref="ForAddress(string)"/>
    public static GrpcChannel ForAddress(string address, GrpcChannelOptions channelOptions) => ForAddress(new Uri(address), channelOptions);

    /// <inheritdoc cref="ForAddress(string)"/>
    public static GrpcChannel ForAddress(Uri address) => ForAddress(address, new GrpcChannelOptions());

    /// <inheritdoc cref="ForAddress(string)"/>
    public static GrpcChannel ForAddress(Uri address, GrpcChannelOptions channelOptions)
    {
        if (!address.IsAbsoluteUri || (address.Scheme != Uri.UriSchemeHttp && address.Scheme != Uri.UriSchemeHttps))
            throw new ArgumentException($"'{address}' is not an http or https address.", nameof(address));
        return new GrpcChannel(address, channelOptions);
    }

    public override CallInvoker CreateCallInvoker() => _invoker;

    /// <summary>Cancels all streams and releases the connections. Unary calls in progress may still complete.</summary>
    public void Dispose()
    {
        _disposed.Cancel();
        Http.Dispose();
    }

    internal Uri AddressOf(IMethod method) => _methodAddresses.TryGetValue(method.FullName, out var address)
        ? address
        : _methodAddresses.GetOrAdd(method.FullName, new Uri(Address, method.FullName));

    // Nothing is done between a call and its connection: no proxy, redirects, cookies or trace headers.
    private static SocketsHttpHandler DefaultHandler() => new()
    {
        UseProxy = false,
        AllowAutoRedirect = false,
        UseCookies = false,
        AutomaticDecompression = DecompressionMethods.None,
        ActivityHeadersPropagator = null,
        EnableMultipleHttp2Connections = true,
        PooledConnectionIdleTimeout = Timeout.InfiniteTimeSpan,
    };
}

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
