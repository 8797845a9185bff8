using System.Net;
using System.Net.Sockets;

namespace KvCluster.Processes;

/// <summary>Ports for servers that run as separate processes and so cannot use port 0. Linked into the projects that start such servers.</summary>
internal static class FreePorts
{
    // Below the range from which the system takes ports of outgoing connections.
    private const int First = 20_000;
    private const int Last = 32_000;

    // Concurrent test runs choose from the same ports, and a program takes a while from its start until it listens. So ports that were given out stay
    // marked until this process ends, by a UDP socket with the first one's number, which nobody else uses.
    private static readonly List<Socket> Marks = [];

    private const int Taken = 20;

    /// <summary>
    /// The first of ten free ports in a row, which belong to this process from now on. One local cluster takes ten. The ten ports above them belong
    /// to it, too, for the streams between its nodes.
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
