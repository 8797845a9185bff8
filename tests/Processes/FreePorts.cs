using System.Net;
using System.Net.Sockets;

namespace KvCluster.Processes;

/// <summary>Ports for servers that run as processes of their own and so cannot be given port 0. Linked into the projects that start some.</summary>
internal static class FreePorts
{
    // Below the range from which the system takes ports of outgoing connections.
    private const int First = 20_000;
    private const int Last = 32_000;

    /// <summary>A port from which ten in a row are free at this moment: what one local cluster takes.</summary>
    public static int Ten()
    {
        for (var attempt = 0; attempt < 200; attempt++)
        {
            var first = Random.Shared.Next(First / 10, Last / 10) * 10;
            if (Enumerable.Range(first, 10).All(IsFree))
                return first;
        }

        throw new InvalidOperationException("No ten free ports in a row.");
    }

    private static bool IsFree(int port)
    {
        using var listener = new TcpListener(IPAddress.Loopback, port);
        try
        {
            listener.Start();
            return true;
        }
        catch (SocketException)
        {
            return false;
        }
    }
}
