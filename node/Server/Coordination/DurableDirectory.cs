using KvCluster.Storage.Files;

namespace KvCluster.Node.Coordination;

/// <summary>Makes folders that a power cut does not take away again.</summary>
internal static class DurableDirectory
{
    /// <summary>Creates a folder and those above it that are missing, each with its name durable. Nothing happens when it is there.</summary>
    public static void Create(string path)
    {
        path = Path.GetFullPath(path);
        if (Directory.Exists(path) || Path.GetDirectoryName(path) is not { } parent)
            return;
        Create(parent);
        LocalDisk.Instance.CreateDirectory(path);
        LocalDisk.Instance.SyncDirectory(parent);
    }
}
