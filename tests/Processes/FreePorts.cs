using System.Net;
using System.Net.Sockets;

namespace KvCluster.Processes;

/// <summary>Ports for servers that run as processes of their own and so cannot be given port 0. Linked into the projects that start some.</summary>
internal static class FreePorts
{
    // Below the range from which the system takes ports of outgoing connections.
    private const int First = 20_000;
    private const int Last = 32_000;

    // Test runs that go on at once choose from the same ports, and a program takes a while from its start until it listens. So ports that were
    // given out stay marked, by the first one's number among those of UDP, until this process ends: nobody serves anything there.
    private static readonly List<Socket> Marks = [];

    private const int Taken = 20;

    /// <summary>
    /// A port from which ten in a row are free, and are this process's from now on: what one local cluster takes. So are the ten above them, for the streams
    /// between its nodes.
    /// </summary>
    public static int Ten()
    {
        for (var attempt = 0; attempt < 1_000; attempt++)
        {
            var first = Random.Shared.Next(First / Taken, Last / Taken) * Taken;
            if (TryMark(first) && Enumerable.Range(first, Taken).All(IsFree))
                return first;
        }

        throw new InvalidOperationException($"No {Taken} free ports in a row.");
    }

    private static bool TryMark(int port)
    {
        var mark = new Socket(SocketType.Dgram, ProtocolType.Udp) { ExclusiveAddressUse = true };
        try
        {
            mark.Bind(new IPEndPoint(IPAddress.Loopback, port));
        }
        catch (SocketException)
        {
            mark.Dispose();
            return false;
        }

        lock (Marks)
            Marks.Add(mark);
        return true;
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
