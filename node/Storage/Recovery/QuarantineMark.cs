using KvCluster.Storage.Control;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Recovery;

/// <summary>
/// A file in a replica's directory which says that its content is not trusted; such a directory is not opened again (FORMAT.md, "Directory"). Written on
/// an executor that may block, read by the opening thread. A failure is a <see cref="StorageIoException"/>.
/// </summary>
internal static class QuarantineMark
{
    private const int ReasonCharsMax = 1_000;

    /// <summary>
    /// Marks a directory permanently; durable when this returns. The file's name alone is the mark, so it is set even if a full disk has no space for the
    /// content.
    /// </summary>
    /// <param name="files">The disk.</param>
    /// <param name="directory">The replica's directory.</param>
    /// <param name="reason">The reason, for operators; kept on one line.</param>
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

    /// <summary>Why a directory is marked; null if it is not.</summary>
    public static string? TryRead(IFileSystem files, StoreLayout layout)
    {
        if (!files.FileExists(layout.Quarantined))
            return null;
        using var file = files.Open(layout.Quarantined, new StorageFileOptions(StorageFileMode.OpenExisting));
        var text = new byte[Math.Min(file.Length, System.Text.Encoding.UTF8.GetMaxByteCount(ReasonCharsMax))];
        try
        {
            var read = file.Read(text, 0);
            return read == 0 ? "no reason was recorded" : OneLine(System.Text.Encoding.UTF8.GetString(text, 0, read));
        }
        catch (StorageIoException failure)
        {
            // The existence of the file is what counts.
            return $"the reason cannot be read: {OneLine(failure.Message)}";
        }
    }

    private static string OneLine(string reason) =>
        string.Concat(reason.Take(ReasonCharsMax).Select(character => char.IsControl(character) ? ' ' : character)).Trim();
}
