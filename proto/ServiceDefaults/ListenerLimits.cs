using Microsoft.AspNetCore.Server.Kestrel.Core;

namespace KvCluster.ServiceDefaults;

/// <summary>What a listening port takes: strangers reach the ports for clients, nodes of the cluster alone those for the streams between nodes.</summary>
internal sealed class ListenerLimits
{
    /// <summary>Connections to a port for clients, if nobody says another number. An idle one costs some 20 KB: this many stay below 100 MB.</summary>
    public const int ConnectionsDefault = 4_096;

    /// <summary>The largest write, 16 MiB, with what stands around it and with the small calls of other callers that go in the same message.</summary>
    public const int MessageBytesMax = 18 << 20;

    // What a connection may have sent that nobody has looked at yet. At a round trip of 1 ms this is 500 MB/s, and a caller that does not read, and so has its
    // stream not read, holds no more.
    private const int ConnectionWindowBytes = 512 << 10;
    private const int StreamWindowBytes = 256 << 10;

    // Those between nodes bring records of up to 32 MiB and are always read.
    private const int PeerConnectionWindowBytes = 8 << 20;
    private const int PeerStreamWindowBytes = 4 << 20;

    // Unary calls of a busy client come on few connections, 256 callers on one is usual; a router's come on one stream. Beyond it clients wait or open another connection. Each
    // stream costs some 6 KB before anybody could refuse its call.
    private const int StreamsPerConnectionMax = 256;

    // Of one request: what gRPC and tracing add is some hundred bytes, and a large token has 4 KiB. An open call holds twice as much.
    private const int HeaderBytesMax = 8 << 10;

    // A browser sends its cookies of a host to all ports of it. There are few connections, with one request each.
    private const int AdminHeaderBytesMax = 32 << 10;

    private static readonly TimeSpan PingDelay = TimeSpan.FromSeconds(30);
    private static readonly TimeSpan PingTimeout = TimeSpan.FromSeconds(20);

    // Of a unary request, or of a connection that has responses to read. Slower than any network that is meant to be used, so that only who stands still is ended.
    private static readonly MinDataRate SlowestRate = new(bytesPerSecond: 4 << 10, gracePeriod: TimeSpan.FromSeconds(10));

    private ListenerLimits()
    {
    }

    /// <summary>Connections at a time; null: any number.</summary>
    public int? ConnectionsMax { get; private init; }

    /// <summary>Only nodes of the cluster have business there.</summary>
    public bool IsForPeers { get; private init; }

    /// <summary>
    /// Connections wait to be read while the process has much to do. Those of clients alone: probes, operators and nodes are few, and must not stand in one queue behind thousands of clients.
    /// </summary>
    public bool IsGated { get; private init; }

    private int HeadersMax { get; init; } = HeaderBytesMax;

    /// <summary>Of a port that clients reach.</summary>
    public static ListenerLimits OfClients(int connectionsMax) => new() { ConnectionsMax = connectionsMax, IsGated = true };

    /// <summary>Of the port for probes, scrapers and people, who come with browsers; it counts its connections itself.</summary>
    public static ListenerLimits OfAdmin() => new() { HeadersMax = AdminHeaderBytesMax };

    /// <summary>Of the port of an embedded coordinator, which nodes call.</summary>
    public static ListenerLimits OfCoordinator() => new() { ConnectionsMax = ConnectionsDefault };

    /// <summary>Of a port for the streams between nodes, which carry large records, idle for long and never end.</summary>
    public static ListenerLimits OfPeers(int connectionsMax) => new() { ConnectionsMax = connectionsMax, IsForPeers = true };

    public void ApplyTo(KestrelServerLimits limits)
    {
        // Also to connections that stand idle, so that those of hosts that are gone are noticed.
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
