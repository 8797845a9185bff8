namespace Grpc.Core;

/// <summary>
/// One call as its handler sees it. Valid until the handler's task ends; afterwards the object serves another call.
/// </summary>
internal abstract class ServerCallContext
{
    /// <summary>The path of the method, <c>/package.Service/Method</c>.</summary>
    public string Method => MethodCore;

    /// <summary>The <c>:authority</c> of the request.</summary>
    public string Host => HostCore;

    /// <summary>The caller's address, <c>ipv4:127.0.0.1:1234</c>.</summary>
    public string Peer => PeerCore;

    /// <summary>UTC time when the caller stops waiting; <see cref="DateTime.MaxValue"/> means never.</summary>
    public DateTime Deadline => DeadlineCore;

    public Metadata RequestHeaders => RequestHeadersCore;

    /// <summary>Cancelled when the caller cancels, its connection is lost or the deadline passes.</summary>
    public CancellationToken CancellationToken => CancellationTokenCore;

    /// <summary>Sent after the last message. Entries may be added until the handler's task ends.</summary>
    public Metadata ResponseTrailers => ResponseTrailersCore;

    /// <summary>The status of the call if its handler returns without an exception.</summary>
    public Status Status
    {
        get => StatusCore;
        set => StatusCore = value;
    }

    public WriteOptions? WriteOptions
    {
        get => WriteOptionsCore;
        set => WriteOptionsCore = value;
    }

    /// <summary>The caller's authenticated identity, from its client certificate.</summary>
    public AuthContext AuthContext => AuthContextCore;

    /// <summary>For interceptors and handlers to pass data to each other.</summary>
    public IDictionary<object, object> UserState => UserStateCore;

    protected abstract string MethodCore { get; }

    protected abstract string HostCore { get; }

    protected abstract string PeerCore { get; }

    protected abstract DateTime DeadlineCore { get; }

    protected abstract Metadata RequestHeadersCore { get; }

    protected abstract CancellationToken CancellationTokenCore { get; }

    protected abstract Metadata ResponseTrailersCore { get; }

    protected abstract Status StatusCore { get; set; }

    protected abstract WriteOptions? WriteOptionsCore { get; set; }

    protected abstract AuthContext AuthContextCore { get; }

    protected abstract IDictionary<object, object> UserStateCore { get; }

    /// <summary>Sends the response headers now, before the first message.</summary>
    /// <exception cref="InvalidOperationException">They were sent already.</exception>
    public Task WriteResponseHeadersAsync(Metadata responseHeaders) => WriteResponseHeadersAsyncCore(responseHeaders);

    protected abstract Task WriteResponseHeadersAsyncCore(Metadata responseHeaders);
}
