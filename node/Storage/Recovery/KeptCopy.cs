using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Recovery;

/// <summary>What a replica's folder that is not in use is worth to people who look for what was lost. Any thread; changes nothing.</summary>
internal static class KeptCopy
{
    /// <summary>The newest record that it certainly has; none for a folder that does not say so, that cannot be read, or whose content is not to be believed.</summary>
    public static UInt128 NewestEtagOf(IFileSystem files, string directory)
    {
        var layout = new StoreLayout(directory);
        try
        {
            if (!files.FileExists(layout.Control) || files.FileExists(layout.Quarantined))
                return UInt128.Zero;
            using var control = ControlFile.TryOpen(files, layout.Control);
            return control?.State.Committed ?? UInt128.Zero;
        }
        catch (Exception unreadable) when (unreadable is StorageIoException or FormatVersionException)
        {
            // To whom it may be worth something, it is not to this program.
            return UInt128.Zero;
        }
    }
}
