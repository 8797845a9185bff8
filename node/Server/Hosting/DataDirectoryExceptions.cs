using System.Runtime.InteropServices;
using KvCluster.Internal.V1;
using KvCluster.Storage.Files;

namespace KvCluster.Node.Hosting;

/// <summary>A directory is not a data directory that this program can use. Nothing in it was changed.</summary>
internal sealed class DirectoryFormatException(string directory, string reason) : IOException($"The directory '{directory}' cannot be used: {reason}.");

/// <summary>A data directory cannot be created or written, because the volume is missing, read-only or owned by another user.</summary>
internal sealed class DirectoryNotUsableException(string directory, Exception inner)
    : IOException($"The directory '{directory}' cannot be used: {Reason(directory, inner)}", inner)
{
    private const int ReadOnlyFileSystem = 30;

    // The engine's exception wraps that of the file system.
    private static string Reason(string directory, Exception failure) => (failure is StorageIoException ? failure.InnerException ?? failure : failure) switch
    {
        UnauthorizedAccessException => $"{Own} may not write there{ModeOf(directory)}. Give the directory to that user (chown -R); "
            + "in Kubernetes, set fsGroup in the pod's security context.",
        { HResult: ReadOnlyFileSystem } => "it is on a read-only file system. Is the volume for the data mounted there, and not read-only?",
        _ => failure.Message,
    };

    // The number matters in containers, whose users often have no name.
    private static string Own
    {
        get
        {
            const string label = "Uid:";
            var line =
                OperatingSystem.IsLinux() ? File.ReadLines("/proc/self/status").FirstOrDefault(line => line.StartsWith(label, StringComparison.Ordinal)) : null;
            return line?.Split('\t') is [_, _, var effective, ..] ? $"this process runs as user {effective} and" : $"the user {Environment.UserName}";
        }
    }

    private static string ModeOf(string directory)
    {
        while (!Directory.Exists(directory) && Path.GetDirectoryName(directory) is { } parent)
            directory = parent;
        return RuntimeInformation.IsOSPlatform(OSPlatform.Windows) ? ""
            : $" ('{directory}' has mode {Convert.ToString((int)File.GetUnixFileMode(directory), 8)})";
    }
}

/// <summary>A data directory belongs to another node, or to a node of another cluster. Nothing in it was changed.</summary>
internal sealed class ForeignDirectoryException(string directory, string reason) : Exception($"The directory '{directory}' belongs to {reason}.");

/// <summary>
/// A data directory is not the one that was started last, and its node must not continue without that one. It is an old copy, whose promises are out of
/// date, or it is being started twice.
/// </summary>
internal sealed class StaleDirectoryException(string directory, string reason) : Exception($"The directory '{directory}' is not the node's newest: {reason}.")
{
    /// <param name="directory">Its path.</param>
    /// <param name="here">The starts that were counted with it.</param>
    /// <param name="counted">The coordinator's record of the node's last start.</param>
    /// <param name="why">Why the node cannot continue as one that lost its disk.</param>
    public StaleDirectoryException(string directory, DirectoryStarts here, NodeStarts counted, string why)
        : this(directory, $"its last is {DirectoryStarts.TextOf(here.Put)}, but the coordinator counted {DirectoryStarts.TextOf(counted)}. "
            + $"It was not changed, because {why}. Start the node with its newest directory, or start the other nodes first; "
            + "where neither is possible, see 'Old copies of data' in deploy/OPERATIONS.md")
    {
    }
}

/// <summary>
/// Another process already runs as this node, with another data directory. This one is a copy, or was started by mistake. Nothing in it was opened.
/// </summary>
internal sealed class NodeRunsAlreadyException(NodeId node, string address, string directory)
    : IOException($"Node {node} is already running and answers at {address}. The directory '{directory}' was not used. "
        + "Is it a copy, or does the id belong to another node?");
