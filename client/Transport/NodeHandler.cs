namespace KvCluster.Client.Transport;

/// <summary>The HTTP/2 connections to nodes and routers.</summary>
internal static class NodeHandler
{
    // A connection of which nothing is heard is pinged after the first time and given up after the second. The handler looks at both once a second, so the
    // second is two seconds in effect, and a connection whose packets are dropped on the way is noticed after three to four. A shorter wait would give up
    // healthy ones where a collector or a machine pauses.
    private static readonly TimeSpan PingDelay = TimeSpan.FromSeconds(1);
    private static readonly TimeSpan PingTimeout = TimeSpan.FromSeconds(1.5);

    // The handler begins with 64 KiB and grows only while round trips are short, which they are not on a busy machine: a value of 8 MiB took 128 of them.
    private const int StreamWindowBytes = 1 << 20;

    /// <summary>How long a connection may take to be made, if nothing else is said.</summary>
    public static readonly TimeSpan ConnectTimeMax = TimeSpan.FromSeconds(2);

    /// <summary>Makes a handler, which opens its connections with a callback.</summary>
    /// <param name="connect">Opens a connection.</param>
    /// <param name="connectTimeMax">How long that may take.</param>
    /// <param name="authorization">Returns the header of requests to an address by which the program authorizes itself; null: none has it.</param>
    public static HttpMessageHandler Create(
        Func<SocketsHttpConnectionContext, CancellationToken, ValueTask<Stream>> connect, TimeSpan connectTimeMax,
        Func<Uri, CancellationToken, ValueTask<string?>>? authorization)
    {
        var handler = Create(connect, connectTimeMax);
        return authorization is null ? handler : new AuthorizationHandler(handler, authorization);
    }

    private static SocketsHttpHandler Create(Func<SocketsHttpConnectionContext, CancellationToken, ValueTask<Stream>> connect, TimeSpan connectTimeMax) => new()
    {
        UseProxy = false,
        ConnectTimeout = connectTimeMax,
        ConnectCallback = connect,
        InitialHttp2StreamWindowSize = StreamWindowBytes,
        KeepAlivePingDelay = PingDelay,
        KeepAlivePingTimeout = PingTimeout,
        // A server allows some hundred streams on a connection. Further ones would wait without limit for one to end, and watches do not.
        EnableMultipleHttp2Connections = true,
    };
}
