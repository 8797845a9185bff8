using System.Buffers.Binary;
using System.Security.Cryptography;
using System.Text;
using Grpc.Core;

namespace KvCluster;

/// <summary>
/// Numbers by which a node or router distinguishes callers that are to get fair shares of something. They are good for that only, because two callers may
/// have the same number. Any thread.
/// </summary>
internal static class CallerNumbers
{
    /// <summary>A number from the caller's address without its port, and from its certificate if it has one.</summary>
    public static uint OfPeer(ServerCallContext context)
    {
        var address = context.Peer;
        var identity = string.Join(',', context.AuthContext.PeerIdentity.Select(static property => property.Value));
        return Of($"{address[..Math.Max(address.LastIndexOf(':'), 0)]} {identity}");
    }

    /// <summary>A number from the caller's connection; never 0.</summary>
    /// <param name="peer">The caller's address and port, <see cref="ServerCallContext.Peer"/>.</param>
    public static uint OfConnection(string peer) => Math.Max(Of(peer), 1);

    private static uint Of(string name)
    {
        Span<byte> hash = stackalloc byte[SHA256.HashSizeInBytes];
        SHA256.HashData(Encoding.UTF8.GetBytes(name), hash);
        return BinaryPrimitives.ReadUInt32LittleEndian(hash);
    }
}
