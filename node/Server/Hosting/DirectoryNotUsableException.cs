using System.Runtime.InteropServices;
using KvCluster.Storage.Files;

namespace KvCluster.Node.Hosting;

/// <summary>A data directory cannot be made or written: a volume that is not there, is read-only, or belongs to somebody else.</summary>
internal sealed class DirectoryNotUsableException(string directory, Exception inner) : IOException($"The folder '{directory}' cannot be used: {Reason(directory, inner)}", inner)
{
    private const int ReadOnlyFileSystem = 30;

    // What the file system said lies within what an operation of the engine says.
    private static string Reason(string directory, Exception failure) => (failure is StorageIoException ? failure.InnerException ?? failure : failure) switch
    {
        UnauthorizedAccessException => $"{Own} may not write there{ModeOf(directory)}. Give it to that user (chown -R), in Kubernetes by fsGroup of the pod's security context.",
        { HResult: ReadOnlyFileSystem } => "it is on a read-only file system. Is the volume for the data mounted there, and not read-only?",
        _ => failure.Message,
    };

    // The number is what counts in containers, whose users often have no name.
    private static string Own
    {
        get
        {
            const string label = "Uid:";
            var line = OperatingSystem.IsLinux() ? File.ReadLines("/proc/self/status").FirstOrDefault(line => line.StartsWith(label, StringComparison.Ordinal)) : null;
            return line?.Split('\t') is [_, _, var effective, ..] ? $"this process runs as user {effective} and" : $"the user {Environment.UserName}";
        }
    }

    private static string ModeOf(string directory)
    {
        while (!Directory.Exists(directory) && Path.GetDirectoryName(directory) is { } parent)
            directory = parent;
        return RuntimeInformation.IsOSPlatform(OSPlatform.Windows) ? "" : $" ('{directory}' has mode {Convert.ToString((int)File.GetUnixFileMode(directory), 8)})";
    }
}
