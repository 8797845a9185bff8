using KvCluster.Storage.Control;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// Says in a replica's directory that its content is not to be believed: such a directory is not opened again (FORMAT.md, "Directory"). Written on an
/// executor that may block, read by the opening thread. A failure is a <see cref="StorageIoException"/>.
/// </summary>
internal static class QuarantineMark
{
    private const int ReasonCharsMax = 1_000;

    /// <summary>Marks a directory for good; durable when it returns. The file's name alone counts, so that a full disk which takes that has the mark.</summary>
    /// <param name="files">The disk.</param>
    /// <param name="directory">The replica's directory.</param>
    /// <param name="reason">For people; kept on one line.</param>
    public static void Write(IFileSystem files, string directory, string reason)
    {
        var path = new StoreLayout(directory).Quarantined;
        var mode = files.FileExists(path) ? StorageFileMode.OpenExisting : StorageFileMode.CreateNew;
        using var file = files.Open(path, new StorageFileOptions(mode));
        files.SyncDirectory(directory);
        var text = System.Text.Encoding.UTF8.GetBytes(OneLine(reason));
        file.Resize(text.Length);
        file.Write(text, 0);
        file.Sync();
    }

    /// <summary>Why a directory is marked; null: it is not.</summary>
    public static string? TryRead(IFileSystem files, StoreLayout layout)
    {
        if (!files.FileExists(layout.Quarantined))
            return null;
        using var file = files.Open(layout.Quarantined, new StorageFileOptions(StorageFileMode.OpenExisting));
        var text = new byte[Math.Min(file.Length, System.Text.Encoding.UTF8.GetMaxByteCount(ReasonCharsMax))];
        try
        {
            var read = file.Read(text, 0);
            return read == 0 ? "the reason was not written" : OneLine(System.Text.Encoding.UTF8.GetString(text, 0, read));
        }
        catch (StorageIoException failure)
        {
            // That it is there counts.
            return $"the reason cannot be read: {OneLine(failure.Message)}";
        }
    }

    private static string OneLine(string reason) =>
        string.Concat(reason.Take(ReasonCharsMax).Select(character => char.IsControl(character) ? ' ' : character)).Trim();
}
