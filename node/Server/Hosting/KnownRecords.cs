// Copies of the coordinator's records in the data directory, from which they are rebuilt when the coordinator's data is lost (node/Server/Recovery/README.md). One file a
// record, under known/, in the coordinator's format, replaced by rename. Kept before a record is acted on. Any thread; callers wait for the disk under one lock, which is
// fine for records that change only with the shards' replicas. A failure to write is a StorageIoException; the copy is then the one before.
using System.Text;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Storage.Files;

namespace KvCluster.Node.Hosting;

/// <summary>What a node last knew of the coordinator's records, on disk.</summary>
internal sealed class KnownRecords
{
    private const string ClusterFile = "cluster";

    private const string NodesFile = "nodes";

    private const string ShardPrefix = "shard-";

    private const string IncomingSuffix = ".new";

    private readonly Lock _gate = new();
    private readonly IFileSystem _files;
    private readonly string _path;
    private readonly Dictionary<ShardId, ShardRecord> _shards = [];
    private ClusterRecord? _cluster;
    private IReadOnlyList<NodeRecord> _nodes = [];
    private bool _exists;

    private KnownRecords(IFileSystem files, string path) => (_files, _path) = (files, path);

    /// <summary>The cluster's record; null if none was kept.</summary>
    public ClusterRecord? Cluster
    {
        get
        {
            lock (_gate)
                return _cluster?.Clone();
        }
    }

    /// <summary>The recovery whose records this node goes by. Those of others are not believed, lower or higher.</summary>
    public ulong Recovery
    {
        get
        {
            lock (_gate)
                return _cluster?.Recovery ?? 0;
        }
    }

    /// <summary>The nodes of the cluster.</summary>
    public IReadOnlyList<NodeRecord> Nodes
    {
        get
        {
            lock (_gate)
                return _nodes;
        }
    }

    /// <summary>The newest record of each shard of which the node has or had a replica. Who leads in it may be out of date, and which directories exist.</summary>
    public IReadOnlyList<ShardRecord> Shards
    {
        get
        {
            lock (_gate)
                return [.. _shards.Values.Select(static record => record.Clone())];
        }
    }

    /// <summary>Reads the copies in a data directory. One that cannot be read counts as absent, and is written again.</summary>
    /// <param name="files">The disk.</param>
    /// <param name="directory">The data directory.</param>
    public static KnownRecords Open(IFileSystem files, string directory)
    {
        var known = new KnownRecords(files, Path.Combine(directory, "known"));
        known.Read();
        return known;
    }

    /// <summary>Keeps a shard's record, unless the copy is as new. Durable when it returns.</summary>
    /// <exception cref="StorageIoException">It could not be written, so nothing may be done that relies on it.</exception>
    public void Keep(ShardRecord record)
    {
        lock (_gate)
        {
            if (_shards.TryGetValue(record.ShardId, out var held) && (record.Recovery, record.Generation).CompareTo((held.Recovery, held.Generation)) <= 0)
                return;
            WriteLocked(NameOf(record.ShardId), RecordText.Format(record));
            _shards[record.ShardId] = record.Clone();
        }
    }

    /// <summary>Keeps the cluster's record, unless the copy is of a later recovery. Durable when it returns.</summary>
    /// <exception cref="StorageIoException">It could not be written.</exception>
    public void Keep(ClusterRecord record)
    {
        lock (_gate)
        {
            if (_cluster is not null && (record.Recovery < _cluster.Recovery || record.Equals(_cluster)))
                return;
            WriteLocked(ClusterFile, RecordText.Format(record));
            _cluster = record.Clone();
        }
    }

    /// <summary>Keeps the nodes of the cluster, if they are others than before. Durable when it returns.</summary>
    /// <exception cref="StorageIoException">They could not be written.</exception>
    public void Keep(IReadOnlyList<NodeRecord> nodes)
    {
        lock (_gate)
        {
            if (nodes.SequenceEqual(_nodes))
                return;
            WriteLocked(NodesFile, string.Concat(nodes.Select(static node => RecordText.Format(node) + "\n")));
            _nodes = nodes;
        }
    }

    private static string NameOf(ShardId shard) => ShardPrefix + shard.ToString(null, System.Globalization.CultureInfo.InvariantCulture);

    private void Read()
    {
        lock (_gate)
        {
            _exists = _files.DirectoryExists(_path);
            foreach (var name in _exists ? _files.List(_path) : [])
            {
                if (name == ClusterFile)
                    _cluster = TryParse<ClusterRecord>(File.ReadAllText(Path.Combine(_path, name)));
                else if (name == NodesFile)
                    _nodes = [.. File.ReadAllLines(Path.Combine(_path, name)).Select(TryParse<NodeRecord>).OfType<NodeRecord>()];
                else if (name.StartsWith(ShardPrefix, StringComparison.Ordinal) && !name.EndsWith(IncomingSuffix, StringComparison.Ordinal) && TryParse<ShardRecord>(File.ReadAllText(Path.Combine(_path, name))) is { } record)
                    _shards[record.ShardId] = record;
            }
        }
    }

    private static T? TryParse<T>(string text)
        where T : class, Google.Protobuf.IMessage, new()
    {
        try
        {
            return RecordText.Parse<T>(text);
        }
        catch (CoordinatorRecordException)
        {
            return null;
        }
    }

    private void WriteLocked(string name, string text)
    {
        Invariant.CheckHeld(_gate);
        if (!_exists)
        {
            _files.CreateDirectory(_path);
            _files.SyncDirectory(Path.GetDirectoryName(_path)!);
            _exists = true;
        }
        var path = Path.Combine(_path, name);
        var incoming = path + IncomingSuffix;
        _files.Delete(incoming);
        using (var file = _files.Open(incoming, new StorageFileOptions(StorageFileMode.CreateNew)))
        {
            file.Write(Encoding.UTF8.GetBytes(text), 0);
            file.Sync();
        }
        _files.Rename(incoming, path);
        _files.SyncDirectory(_path);
    }
}
