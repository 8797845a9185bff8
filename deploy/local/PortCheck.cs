using System.Net;
using System.Net.Sockets;

namespace KvCluster.Local;

/// <summary>
/// Checks the cluster's ports, which <see cref="LocalOptions"/> chooses, before anything starts, so that a port in use gives one clear line and not half a
/// cluster.
/// </summary>
internal static class PortCheck
{
    /// <summary>Throws a <see cref="LauncherException"/> that names the first port in use and its purpose.</summary>
    public static void CheckFree(LocalOptions options, int nodes)
    {
        Check(options.Port, "the router");
        Check(options.ConsolePort, "the console", "--console-port");
        for (var node = 1; node <= nodes; node++)
        {
            Check(options.Port + node, $"node {node}");
            Check(options.Port + LocalOptions.PeerPortOffset + node, $"node {node}, for other nodes");
            if (options.Processes)
                Check(options.ConsolePort + node, $"the console of node {node}", "--console-port");
        }

        if (options.Processes)
            Check(options.Port + LocalOptions.CoordinatorPortOffset, "the coordinator");
    }

    // Connects instead of binding. Lingering connections of the last run would keep a plain socket from binding, but not the server.
    private static void Check(int port, string what, string option = "--port")
    {
        using var socket = new Socket(AddressFamily.InterNetwork, SocketType.Stream, ProtocolType.Tcp);
        try
        {
            socket.Connect(IPAddress.Loopback, port);
        }
        catch (SocketException)
        {
            return;
        }

        throw new LauncherException(
            ExitCodes.Unavailable, $"Port {port} for {what} is in use. Stop what uses it, perhaps another cluster, or choose other ports with {option}.");
    }
}
