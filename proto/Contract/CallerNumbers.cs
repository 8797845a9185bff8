using System.Buffers.Binary;
using System.Security.Cryptography;
using System.Text;
using Grpc.Core;

namespace KvCluster;

/// <summary>
/// Numbers of who calls, by which a node and a router tell callers apart whose shares of something are to be fair. Good for that only: two callers may have
/// one number. Any thread.
/// </summary>
internal static class CallerNumbers
{
    /// <summary>By the caller's address without its port, and by its certificate where it has one.</summary>
    public static uint OfPeer(ServerCallContext context)
    {
        var address = context.Peer;
        var identity = string.Join(',', context.AuthContext.PeerIdentity.Select(static property => property.Value));
        return Of($"{address[..Math.Max(address.LastIndexOf(':'), 0)]} {identity}");
    }

    /// <summary>By the caller's connection; never 0.</summary>
    public static uint OfConnection(ServerCallContext context) => Math.Max(Of(context.Peer), 1);

    private static uint Of(string name)
    {
        Span<byte> hash = stackalloc byte[SHA256.HashSizeInBytes];
        SHA256.HashData(Encoding.UTF8.GetBytes(name), hash);
        return BinaryPrimitives.ReadUInt32LittleEndian(hash);
    }
}
