namespace KvCluster.Storage.Files;

/// <summary>Small files that are replaced as a whole. One caller at a time for each path; a failure is a <see cref="StorageIoException"/>.</summary>
internal static class DurableFile
{
    /// <summary>What the name of a file ends with while it is not complete.</summary>
    public const string IncomingSuffix = ".new";

    /// <summary>
    /// Creates a file or replaces it. Durable when it returns. After a crash or a failure there is the file of before or the new one, complete, and which of
    /// them a later power loss leaves is open until the directory is synced. A file whose name has <see cref="IncomingSuffix"/> may be left as well; the next
    /// call replaces it.
    /// </summary>
    public static void Replace(IFileSystem files, string path, ReadOnlySpan<byte> content)
    {
        var incoming = path + IncomingSuffix;
        files.Delete(incoming);
        using (var file = files.Open(incoming, new StorageFileOptions(StorageFileMode.CreateNew)))
        {
            file.Write(content, 0);
            file.Sync();
        }
        files.Rename(incoming, path);
        files.SyncDirectory(Path.GetDirectoryName(path)!);
    }
}
