// A node's data directory: LOCK, held while it is used; format, the layout's version; owner, whose it is; starts, how often it was started;
// shards/{id}, one replica each; aside/{id}, the last that was set aside, or one before it that has more, and then aside/{id}-later; retired/{id}-{replica}, those that left, until
// space is needed; examined, what `kv doctor` wrote to try the disk. Used while the node starts, on one thread.
using System.Globalization;
using KvCluster.Node.Runtime;
using KvCluster.Storage.Files;
using KvCluster.Storage.Recovery;

namespace KvCluster.Node.Hosting;

/// <summary>Opens a data directory for one process and counts its starts.</summary>
internal sealed class NodeDirectory : IAsyncDisposable
{
    /// <summary>Of a folder set aside that has less than one set aside before.</summary>
    private const string LesserSuffix = "-later";

    private const string FormatText = "kvcluster node 1";

    private readonly IFileSystem _files;
    private readonly string _path;
    private readonly DirectoryLock _lock;

    private NodeDirectory(IFileSystem files, string path, DirectoryLock directoryLock)
    {
        _files = files;
        _path = path;
        _lock = directoryLock;
    }

    /// <summary>Whether it belongs to a node of some cluster.</summary>
    public bool IsClaimed => _files.FileExists(OwnerPath);

    /// <summary>Where it is.</summary>
    public string Location => _path;

    /// <summary>Where folders of shards are kept that are not used any more.</summary>
    public string AsidePath => Path.Combine(_path, "aside");

    /// <summary>Where replicas are kept that left their shards, until space is needed.</summary>
    public string RetiredPath => Path.Combine(_path, "retired");

    /// <summary>How often it was started, this start included once <see cref="CountStart"/> has run.</summary>
    public ulong Starts { get; private set; }

    private string FormatPath => Path.Combine(_path, "format");

    private string OwnerPath => Path.Combine(_path, "owner");

    private string StartsPath => Path.Combine(_path, "starts");

    private string ShardsPath => Path.Combine(_path, "shards");

    /// <summary>Opens or creates it.</summary>
    /// <exception cref="DirectoryInUseException">Another process has it open.</exception>
    /// <exception cref="DirectoryFormatException">It is of another version, or of something else.</exception>
    /// <exception cref="DirectoryNotUsableException">It cannot be made or written.</exception>
    public static NodeDirectory Open(string path, IFileSystem files)
    {
        try
        {
            return TakeAndCheck(path, files);
        }
        catch (Exception failure) when (failure is UnauthorizedAccessException or IOException and not (DirectoryInUseException or DirectoryFormatException))
        {
            throw new DirectoryNotUsableException(path, failure);
        }
    }

    /// <summary>Makes it a node's of a cluster for good, or makes sure that it is. Before the first <see cref="CountStart"/>: nothing was changed then.</summary>
    /// <exception cref="ForeignDirectoryException">It is another node's, or of another cluster.</exception>
    public void Claim(uint node, string clusterId)
    {
        var own = string.Create(CultureInfo.InvariantCulture, $"node {node}\ncluster {clusterId}\n");
        if (!_files.FileExists(OwnerPath))
        {
            Write(OwnerPath, own);
            return;
        }
        var owner = File.ReadAllText(OwnerPath);
        if (owner == own)
            return;
        var lines = owner.Split('\n');
        throw lines is [_, var cluster, ""] && cluster != own.Split('\n')[1]
            ? new ForeignDirectoryException(_path, $"of another {cluster}, not of {clusterId}")
            : new ForeignDirectoryException(_path, $"{lines[0]}'s, not node {node}'s");
    }

    /// <summary>Where a shard's replica is.</summary>
    public string ShardPath(uint shard) => Path.Combine(ShardsPath, shard.ToString(CultureInfo.InvariantCulture));

    /// <summary>The shards that have a folder here.</summary>
    public IReadOnlyList<uint> ListShards() =>
        [.. _files.List(ShardsPath).Select(static name => (Is: uint.TryParse(name, NumberStyles.None, CultureInfo.InvariantCulture, out var shard), Shard: shard)).Where(static found => found.Is).Select(static found => found.Shard)];

    /// <summary>
    /// Takes a replica's folder out of the way, in the place of the one set aside before it: of each shard one is kept for whoever wants to look at it. One that has
    /// less than that one, as of a replica that was being rebuilt in its place, does not take its place but is kept beside it. Only for a replica that the shard's record, read afresh, does not name any more, or when all that an old copy holds is set aside. Durable when it returns.
    /// </summary>
    public void SetAside(uint shard)
    {
        _files.CreateDirectory(AsidePath);
        _files.SyncDirectory(_path);
        var aside = Path.Combine(AsidePath, shard.ToString(CultureInfo.InvariantCulture));
        if (Directory.Exists(aside) && KeptCopy.NewestEtagOf(_files, ShardPath(shard)) < KeptCopy.NewestEtagOf(_files, aside))
            aside += LesserSuffix;
        if (Directory.Exists(aside))
            Directory.Delete(aside, recursive: true);
        Directory.Move(ShardPath(shard), aside);
        _files.SyncDirectory(ShardsPath);
        _files.SyncDirectory(AsidePath);
    }

    /// <summary>Takes away the folder of a replica that left its shard, under the same condition; see <see cref="RetiredReplicas"/>. Durable when it returns.</summary>
    public void Retire(uint shard, ulong replica)
    {
        _files.CreateDirectory(RetiredPath);
        _files.SyncDirectory(_path);
        Directory.Move(ShardPath(shard), Path.Combine(RetiredPath, string.Create(CultureInfo.InvariantCulture, $"{shard}-{replica:x16}")));
        _files.SyncDirectory(ShardsPath);
        _files.SyncDirectory(RetiredPath);
    }

    /// <summary>Deletes the folder of a replica that was just made and has promised nothing.</summary>
    public void Delete(uint shard)
    {
        Directory.Delete(ShardPath(shard), recursive: true);
        _files.SyncDirectory(ShardsPath);
    }

    /// <summary>Raises the count of starts; durable when it returns. Not below a count that the coordinator has, for a directory that was behind.</summary>
    public void CountStart(ulong atLeast)
    {
        Starts = Math.Max(Starts + 1, atLeast);
        Write(StartsPath, Starts.ToString(CultureInfo.InvariantCulture));
    }

    /// <summary>Takes the last <see cref="CountStart"/> back: the coordinator has counted another directory in its place.</summary>
    public void TakeStartBack(ulong starts)
    {
        Starts = starts;
        Write(StartsPath, Starts.ToString(CultureInfo.InvariantCulture));
    }

    /// <summary>Gives it up to other processes.</summary>
    public ValueTask DisposeAsync()
    {
        _lock.Dispose();
        return ValueTask.CompletedTask;
    }

    private static NodeDirectory TakeAndCheck(string path, IFileSystem files)
    {
        DurableDirectory.Create(path);
        var directoryLock = DirectoryLock.Take(path);
        try
        {
            var directory = new NodeDirectory(files, path, directoryLock);
            directory.Check();
            return directory;
        }
        catch
        {
            directoryLock.Dispose();
            throw;
        }
    }

    private void Check()
    {
        if (_files.FileExists(FormatPath))
        {
            var format = File.ReadAllText(FormatPath);
            if (format != FormatText)
                throw new DirectoryFormatException(_path, $"its format is '{format.Trim()}', this program's is '{FormatText}'");
            Starts = ReadStarts();
            // A copy may have been made without folders that were empty.
            _files.CreateDirectory(ShardsPath);
            _files.SyncDirectory(_path);
            return;
        }
        if (_files.List(_path).Any(name => name is not ("LOCK" or "format.new" or "shards")))
            throw new DirectoryFormatException(_path, "it has no file 'format' but is not empty");
        _files.CreateDirectory(ShardsPath);
        // Last: with it the directory is whole.
        Write(FormatPath, FormatText);
    }

    private ulong ReadStarts()
    {
        if (!_files.FileExists(StartsPath))
            return 0;
        var text = File.ReadAllText(StartsPath);
        return ulong.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out var starts)
            ? starts
            : throw new DirectoryFormatException(_path, "its file 'starts' is not a number");
    }

    private void Write(string path, string text)
    {
        var incoming = path + ".new";
        _files.Delete(incoming);
        using (var file = _files.Open(incoming, new StorageFileOptions(StorageFileMode.CreateNew)))
        {
            file.Write(System.Text.Encoding.UTF8.GetBytes(text), 0);
            file.Sync();
        }
        _files.Rename(incoming, path);
        _files.SyncDirectory(_path);
    }
}
