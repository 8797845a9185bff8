using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Recovery;

/// <summary>What can be read of a replica's directory that is not in use, for finding lost data. Any thread; changes nothing.</summary>
internal static class KeptCopy
{
    /// <summary>The newest record that the directory certainly has. Zero if it does not say so, cannot be read, or is quarantined.</summary>
    public static Etag NewestEtagOf(IFileSystem files, string directory)
    {
        var layout = new StoreLayout(directory);
        try
        {
            if (!files.FileExists(layout.Control) || files.FileExists(layout.Quarantined))
                return Etag.None;
            using var control = ControlFile.TryOpen(files, layout.Control);
            return control?.State.Committed ?? Etag.None;
        }
        catch (Exception unreadable) when (unreadable is StorageIoException or FormatVersionException)
        {
            // A directory that cannot be read may be of use to others, but not to this program.
            return Etag.None;
        }
    }
}
