// A node's data directory. LOCK is held while the directory is used; `format` has the layout's version, `owner` the node, cluster and lineage, `starts` which
// starts of the node were counted with it (DirectoryStarts); shards/{id} has one replica each, and `shared`, while the node runs and after a crash, what their
// journals may lack (SharedJournal); aside/{id} has the one that was set aside last, or an earlier one that has more, and then aside/{id}-later the other
// (AsideCopies); retired/{id}-{replica} has replicas that left, until space is needed; known/ has copies of the coordinator's records (KnownRecords);
// `kv doctor` writes `examined` to test the disk, and a start `.probe`. Opened, claimed and counted by one task as the node starts. Afterwards the host's loop
// moves directories of replicas, those of different shards at once; reports and metrics read it on any thread.
using System.Globalization;
using System.Text;
using KvCluster.Storage.Files;
using KvCluster.Storage.Inspection;
using KvCluster.Storage.Recovery;

namespace KvCluster.Node.Hosting;

/// <summary>Opens a data directory for one process and counts its starts.</summary>
internal sealed class NodeDirectory : IAsyncDisposable
{
    private const string FormatText = "kvcluster node 3";

    // While there may be a shared journal: what it has and the replicas' own directories lack, a program before it would not look for.
    private const string SharedFormatText = "kvcluster node 4";
    private const string FormatFile = "format";
    private const string IncomingFormatFile = FormatFile + DurableFile.IncomingSuffix;
    private const string ShardsDirectory = "shards";

    // Where the coordinator has lost its records, and no node that has the cluster's data waits or runs, the cluster can be created anew by kv-node init, or by
    // its first nodes if the directories of all of them are empty.
    private const string AfterALoss =
        "If the coordinator's data was lost and a second cluster was created by mistake, stop the nodes of that one and move their data directories away, "
        + "delete its keys (etcdctl del --prefix /kvcluster/NAME/, with the cluster's name), start this node again, and rebuild the records: "
        + "kv admin coordinator recover";

    private readonly IFileSystem _files;
    private readonly string _path;
    private readonly DirectoryLock _lock;

    private NodeDirectory(IFileSystem files, string path, DirectoryLock directoryLock)
    {
        _files = files;
        _path = path;
        _lock = directoryLock;
        Aside = new AsideCopies(files, AsideIn(path));
        Known = KnownRecords.Open(files, path);
    }

    /// <summary>Whether it belongs to a node of some cluster.</summary>
    public bool IsClaimed => _files.FileExists(OwnerPath);

    /// <summary>Its path.</summary>
    public string Location => _path;

    /// <summary>The path of shard directories that are no longer used.</summary>
    public string AsidePath => Aside.Location;

    /// <summary>The copies in it.</summary>
    public AsideCopies Aside { get; }

    /// <summary>The path of replicas that left their shards. They are kept until space is needed.</summary>
    public string RetiredPath => Path.Combine(_path, "retired");

    /// <summary>The copies of the coordinator's records in it.</summary>
    public KnownRecords Known { get; }

    /// <summary>What was done with the shared journal that the last process left; null if the directory was just created.</summary>
    public SharedJournalReplay? Replay { get; private set; }

    /// <summary>The starts that were counted with it, including this one once <see cref="CountStart"/> has run.</summary>
    public DirectoryStarts Starts { get; private set; } = DirectoryStarts.None;

    private string FormatPath => FormatIn(_path);

    private string OwnerPath => Path.Combine(_path, "owner");

    private string StartsPath => Path.Combine(_path, "starts");

    private string ShardsPath => Path.Combine(_path, ShardsDirectory);

    /// <summary>Whether a directory is the data directory of a node, of whatever format. Changes nothing.</summary>
    public static bool IsOne(string path) => LocalDisk.Instance.FileExists(FormatIn(path));

    /// <summary>
    /// Whether a data directory's last process did not stop cleanly, so that its shared journal may have what replicas' own directories lack.
    /// </summary>
    public static bool HasShared(IFileSystem files, string path) => SharedJournalReplay.IsLeft(files, path);

    /// <summary>Puts that into the replicas' directories. The caller holds the data directory's lock.</summary>
    /// <exception cref="StorageIoException">An I/O error, or the disk is full. It can be repeated.</exception>
    public static SharedJournalReplay SettleShared(IFileSystem files, string path)
    {
        var shards = Path.Combine(Path.GetFullPath(path), ShardsDirectory);
        return SharedJournalReplay.Settle(files, Path.GetFullPath(path), files.List(shards).Select(name => Path.Combine(shards, name)));
    }

    /// <summary>The path of the copies in a data directory.</summary>
    public static string AsideIn(string dataDirectory) => Path.Combine(dataDirectory, "aside");

    /// <summary>Opens or creates it.</summary>
    /// <exception cref="DirectoryInUseException">Another process has it open.</exception>
    /// <exception cref="DirectoryFormatException">It has another format version, or is not a data directory.</exception>
    /// <exception cref="DirectoryNotUsableException">It cannot be created or written.</exception>
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

    /// <summary>
    /// Assigns it to a node of a cluster for good, or verifies that it is that node's. To be called before the first <see cref="CountStart"/>, so that
    /// nothing is changed if it is not, except that what the shared journal had is in the replicas' journals.
    /// </summary>
    /// <exception cref="ForeignDirectoryException">It belongs to another node, another cluster, or another lineage of the cluster.</exception>
    public void Claim(NodeId node, string clusterId, Lineage lineage)
    {
        var own = string.Create(CultureInfo.InvariantCulture, $"node {node}\ncluster {clusterId}\nlineage {lineage}\n");
        if (!_files.FileExists(OwnerPath))
        {
            Write(OwnerPath, own);
            return;
        }
        var owner = Read(OwnerPath);
        if (owner == own)
            return;
        var (lines, ours) = (owner.Split('\n'), own.Split('\n'));
        throw lines is [_, var cluster, _, ""] && cluster != ours[1]
            ? new ForeignDirectoryException(_path, $"another {cluster}, not to {clusterId}. Is it the right directory and the right coordinator? {AfterALoss}")
            : lines is [var claimed, _, var other, ""] && claimed == ours[0] ? new ForeignDirectoryException(
                _path, $"another {other} of cluster {clusterId}, not to {lineage}, because the cluster's data was restored or replaced since")
            : new ForeignDirectoryException(_path, $"{lines[0]}, not to node {node}");
    }

    /// <summary>Whether it, and every replica's directory in it, is on a file system with which there may be a shared journal.</summary>
    public bool MayShare => FileFeatures.MixesWrites(_path) && FileFeatures.MixesWrites(ShardsPath)
        && _files.List(ShardsPath).All(name => FileFeatures.MixesWrites(Path.Combine(ShardsPath, name)));

    /// <summary>Notes that there may be a shared journal from here on. Durable when it returns.</summary>
    public void DeclareShared() => DeclareFormat(SharedFormatText);

    /// <summary>
    /// Notes that there is no shared journal any more, if that is so: a program that knows none may use the directory then. Durable when it returns.
    /// </summary>
    public void DeclareWhole()
    {
        if (!HasShared(_files, _path))
            DeclareFormat(FormatText);
    }

    /// <summary>Measures how journals should use the disk.</summary>
    public JournalUse MeasureWhatPays() => DeviceProbe.MeasureOrAssume(_files, TimeProvider.System, _path);

    /// <summary>The path of a shard's replica.</summary>
    public string ShardPath(ShardId shard) => Path.Combine(ShardsPath, shard.ToString(null, CultureInfo.InvariantCulture));

    /// <summary>The shards that have a directory here.</summary>
    public IReadOnlyList<ShardId> ListShards() =>
        [.. _files.List(ShardsPath)
            .Select(static name => (Is: uint.TryParse(name, NumberStyles.None, CultureInfo.InvariantCulture, out var shard), Shard: shard))
            .Where(static found => found.Is)
            .Select(static found => new ShardId(found.Shard))];

    /// <summary>
    /// Moves a replica's directory aside, in place of the one set aside before it; one is kept per shard for whoever wants to examine it. If it has less
    /// than that one, for example because the replica was being rebuilt, it is kept beside it instead. Only for a replica that the shard's record, read
    /// afresh, no longer names, or when everything in an old copy is set aside. Durable when it returns.
    /// </summary>
    public void SetAside(ShardId shard)
    {
        Aside.Add(shard, ShardPath(shard));
        _files.SyncDirectory(ShardsPath);
    }

    /// <summary>
    /// Moves the directory of a replica that left its shard to the retired ones, under the same condition; see <see cref="RetiredSpace"/>. Durable when
    /// it returns.
    /// </summary>
    public void Retire(ShardId shard, ReplicaId replica)
    {
        _files.CreateDirectory(RetiredPath);
        _files.SyncDirectory(_path);
        _files.Rename(ShardPath(shard), Path.Combine(RetiredPath, string.Create(CultureInfo.InvariantCulture, $"{shard}-{replica:x16}")));
        // The new name first: if power is lost in between, it has both names on some file systems, and on none neither.
        _files.SyncDirectory(RetiredPath);
        _files.SyncDirectory(ShardsPath);
    }

    /// <summary>The length of all files that were set aside. Any thread.</summary>
    /// <exception cref="IOException">The disk cannot be read, or somebody deletes them at the moment.</exception>
    public long AsideBytes() => Aside.Bytes();

    /// <summary>Deletes the directory of a replica that was just created and has promised nothing.</summary>
    public void Delete(ShardId shard)
    {
        _files.DeleteDirectory(ShardPath(shard));
        _files.SyncDirectory(ShardsPath);
    }

    /// <summary>
    /// Notes a start before the coordinator is asked to count it, or, if the coordinator has counted another directory instead, what was noted before.
    /// Durable when it returns.
    /// </summary>
    public void CountStart(DirectoryStarts starts)
    {
        Write(StartsPath, starts.ToString());
        Starts = starts;
    }

    /// <summary>Releases it to other processes.</summary>
    public ValueTask DisposeAsync()
    {
        _lock.Dispose();
        return ValueTask.CompletedTask;
    }

    private static string FormatIn(string path) => Path.Combine(path, FormatFile);

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
            var format = Read(FormatPath);
            if (format is not (FormatText or SharedFormatText))
                throw new DirectoryFormatException(
                    _path, $"its format is '{format.Trim()}', but this program supports '{FormatText}' and '{SharedFormatText}'");
            Starts = ReadStarts();
            // A copy may have been made without empty directories.
            _files.CreateDirectory(ShardsPath);
            // Before anybody reads a replica's directory.
            Replay = SettleShared(_files, _path);
            // An earlier process may have ended between a change and the sync of its directory. What is read from here on must stay.
            _files.SyncDirectory(_path);
            _files.SyncDirectory(ShardsPath);
            return;
        }
        if (_files.List(_path).Any(name => name is not (DirectoryLock.FileName or IncomingFormatFile or ShardsDirectory)))
            throw new DirectoryFormatException(_path, "it has no file 'format' but is not empty");
        _files.CreateDirectory(ShardsPath);
        // Written last: with this file the directory is complete.
        Write(FormatPath, FormatText);
    }

    private DirectoryStarts ReadStarts()
    {
        if (!_files.FileExists(StartsPath))
            return DirectoryStarts.None;
        return DirectoryStarts.TryParse(Read(StartsPath)) ?? throw new DirectoryFormatException(_path, "its file 'starts' does not have two records of starts");
    }

    private void DeclareFormat(string text)
    {
        if (Read(FormatPath) != text)
            Write(FormatPath, text);
    }

    private void Write(string path, string text) => DurableFile.Replace(_files, path, Encoding.UTF8.GetBytes(text));

    private string Read(string path)
    {
        using var file = _files.Open(path, new StorageFileOptions(StorageFileMode.ReadOnly));
        var content = new byte[file.Length];
        return Encoding.UTF8.GetString(content.AsSpan(0, file.Read(content, 0)));
    }
}
