using Microsoft.AspNetCore.Server.Kestrel.Core;

namespace KvCluster.ServiceDefaults.Connections;

/// <summary>
/// The limits of a listening port. Anybody can reach the ports for clients; only nodes of the cluster use those for the streams between nodes.
/// </summary>
internal sealed class ListenerLimits
{
    /// <summary>The default limit of connections to a port for clients. An idle one costs about 20 KB, so this many stay below 100 MB.</summary>
    public const int ConnectionsDefault = 4_096;

    /// <summary>The largest write, plus its encoding and the small calls of other callers in the same message.</summary>
    public const int MessageBytesMax = KvLimits.WriteBytesMax + (2 << 20);

    // The data that a connection may have sent and nobody has looked at yet. At a round trip of 4 ms, which the threads of two busy processes take to answer
    // each other, a stream has 128 MB/s. A caller that does not read, and whose stream is therefore not read, holds no more than this.
    private const int ConnectionWindowBytes = 1 << 20;
    private const int StreamWindowBytes = 512 << 10;

    // Connections between nodes carry records of up to 32 MiB and are always read.
    private const int PeerConnectionWindowBytes = 8 << 20;
    private const int PeerStreamWindowBytes = 4 << 20;

    // A busy client makes unary calls on few connections, usually with up to 256 callers on one; a router uses one stream. Beyond this limit clients wait or
    // open another connection. Each stream costs about 6 KB before its call could be refused. Kestrel has room for twice as many, because a stream that was
    // reset counts until its handler has ended. On two busy processors, 48 callers with deadlines of 5 to 10 ms filled the room of 256 in the pause of one
    // garbage collection.
    private const int StreamsPerConnectionMax = 1_024;

    // For one request: gRPC and tracing add some hundred bytes, and a large token has 4 KiB. An open call holds twice this.
    private const int HeaderBytesMax = 8 << 10;

    // A browser sends a host's cookies to all of its ports. There are few connections, with one request each.
    private const int AdminHeaderBytesMax = 32 << 10;

    private static readonly TimeSpan PingDelay = TimeSpan.FromSeconds(30);
    private static readonly TimeSpan PingTimeout = TimeSpan.FromSeconds(20);

    // For a unary request, and for a connection that has responses to read. Slower than any network that is worth using, so it ends only connections that
    // have stalled.
    private static readonly MinDataRate SlowestRate = new(bytesPerSecond: 4 << 10, gracePeriod: TimeSpan.FromSeconds(10));

    private ListenerLimits()
    {
    }

    /// <summary>The maximum number of connections; null means no limit.</summary>
    public int? ConnectionsMax { get; private init; }

    /// <summary>Whether only nodes of the cluster use the port.</summary>
    public bool IsForPeers { get; private init; }

    /// <summary>
    /// Whether connections wait to be read while the process is overloaded. Only for clients: probes, operators and nodes are few and must not wait in a
    /// queue behind thousands of clients.
    /// </summary>
    public bool IsGated { get; private init; }

    private int HeadersMax { get; init; } = HeaderBytesMax;

    /// <summary>The limits of a port for clients.</summary>
    public static ListenerLimits OfClients(int connectionsMax) => new() { ConnectionsMax = connectionsMax, IsGated = true };

    /// <summary>The limits of the port for probes, scrapers and people, who use browsers. It counts its connections itself.</summary>
    public static ListenerLimits OfAdmin() => new() { HeadersMax = AdminHeaderBytesMax };

    /// <summary>The limits of an embedded coordinator's port, which nodes call.</summary>
    public static ListenerLimits OfCoordinator() => new() { ConnectionsMax = ConnectionsDefault };

    /// <summary>The limits of a port for the streams between nodes, which carry large records, are idle for long and never end.</summary>
    public static ListenerLimits OfPeers(int connectionsMax) => new() { ConnectionsMax = connectionsMax, IsForPeers = true };

    public void ApplyTo(KestrelServerLimits limits)
    {
        // Kestrel reads it once, for the whole process. By default it ends a connection with all its calls after twenty streams for which it had no room.
        // 0 means that it refuses these streams only.
        AppContext.SetData("Microsoft.AspNetCore.Server.Kestrel.Http2.MaxEnhanceYourCalmCount", 0);
        // Also on idle connections, so that those of dead hosts are detected.
        limits.Http2.KeepAlivePingDelay = PingDelay;
        limits.Http2.KeepAlivePingTimeout = PingTimeout;
        limits.Http2.MaxStreamsPerConnection = StreamsPerConnectionMax;
        limits.Http2.InitialConnectionWindowSize = IsForPeers ? PeerConnectionWindowBytes : ConnectionWindowBytes;
        limits.Http2.InitialStreamWindowSize = IsForPeers ? PeerStreamWindowBytes : StreamWindowBytes;
        limits.MaxRequestHeadersTotalSize = HeadersMax;
        limits.MaxRequestBodySize = MessageBytesMax;
        limits.MinRequestBodyDataRate = limits.MinResponseDataRate = SlowestRate;
    }
}
