// Copies of the coordinator's records in the data directory, from which they are rebuilt when the coordinator's data is lost
// (node/Server/CoordinatorRecovery/README.md). One file a record, under known/, in the coordinator's format and with a checksum, replaced by rename. Kept
// before a record is acted on. Any thread; callers wait for the disk under one lock, which is fine for records that change only with the shards' replicas. A
// failure to write is a StorageIoException: this process goes on with the copy before, and on the disk is that one or the new one. A crash at any point leaves
// one of the two, complete, and what an open has read stays.
using System.Globalization;
using System.Text;
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Runtime;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Node.Hosting;

/// <summary>What a node last knew of the coordinator's records, on disk.</summary>
internal sealed class KnownRecords
{
    /// <summary>
    /// How long a node stays bound to a recovery of which it hears nothing more. Several times as long as the node that rebuilds the records takes at most
    /// (<c>RecoveryExecution.CompleteTimeMax</c>), by clocks that may differ in speed.
    /// </summary>
    public static readonly TimeSpan BoundTimeMax = TimeSpan.FromMinutes(10);

    private const string ClusterFile = "cluster";

    private const string NodesFile = "nodes";

    private const string BoundFile = "bound";

    private const string ShardPrefix = "shard-";

    /// <summary>Many times a record of the most replicas, and of the most nodes.</summary>
    private const int FileBytesMax = 16 << 20;

    private const string ChecksumPrefix = "crc32c ";

    private readonly Lock _gate = new();
    private readonly IFileSystem _files;
    private readonly string _path;
    private readonly TimeProvider _clock;
    private readonly Dictionary<ShardId, ShardRecord> _shards = [];
    private ClusterRecord? _cluster;
    private IReadOnlyList<NodeRecord> _nodes = [];
    private RecoveryClaim? _bound;
    private long _boundSince;
    private bool _areNodesDurable;
    private bool _isDirectoryDurable;

    private KnownRecords(IFileSystem files, string path, TimeProvider clock) => (_files, _path, _clock) = (files, path, clock);

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
    public RecoveryNumber Recovery
    {
        get
        {
            lock (_gate)
                return RecoveryNumber.Of(_cluster);
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

    /// <summary>
    /// The newest record of each shard of which the node has or had a replica. Who leads in it may be out of date, and which directories exist.
    /// </summary>
    public IReadOnlyList<ShardRecord> Shards
    {
        get
        {
            lock (_gate)
                return [.. _shards.Values.Select(static record => record.Clone())];
        }
    }

    /// <summary>
    /// The recovery for which this node has reported, and which it has not joined; null if there is none. Until then it acts on no record and changes none.
    /// </summary>
    public RecoveryClaim? Bound
    {
        get
        {
            lock (_gate)
                return BoundLocked()?.Clone();
        }
    }

    /// <summary>Why a bound node does nothing, for people.</summary>
    public static string DescribeBound(RecoveryClaim bound) => string.Create(
        CultureInfo.InvariantCulture,
        $"this node has reported for recovery {bound.Recovery} of the coordinator's records, which node {bound.Node} makes, and acts on no earlier record "
        + $"until that is complete or has been given up ({BoundTimeMax.TotalMinutes:0} minutes at most)");

    /// <summary>
    /// Reads the copies in a data directory. A shard's or the nodes' that cannot be read counts as absent, and is written again. Without the cluster's, or the
    /// promise of <see cref="TryBind"/>, the node might follow a coordinator that it must refuse.
    /// </summary>
    /// <param name="files">The disk.</param>
    /// <param name="directory">The data directory.</param>
    /// <param name="clock">The boot clock; null: the machine's.</param>
    /// <exception cref="DirectoryFormatException">One of those two is damaged.</exception>
    /// <exception cref="StorageIoException">What an earlier process wrote could not be made durable.</exception>
    public static KnownRecords Open(IFileSystem files, string directory, TimeProvider? clock = null)
    {
        var known = new KnownRecords(files, Path.Combine(directory, "known"), clock ?? BootClock.Instance);
        known.Read(directory);
        return known;
    }

    /// <summary>Keeps a shard's record, unless the copy is as new. Durable when it returns.</summary>
    /// <returns>False if this node is bound to a recovery. Then nothing may be done that relies on the record.</returns>
    /// <exception cref="StorageIoException">It could not be written, so nothing may be done that relies on it.</exception>
    public bool TryKeep(ShardRecord record)
    {
        lock (_gate)
        {
            if (BoundLocked() is not null)
                return false;
            if (_shards.TryGetValue(record.ShardId, out var held) && record.Rank.CompareTo(held.Rank) <= 0)
                return true;
            WriteLocked(NameOf(record.ShardId), RecordText.Format(record) + "\n");
            _shards[record.ShardId] = record.Clone();
            return true;
        }
    }

    /// <summary>
    /// Keeps the cluster's record, unless the copy is of a later recovery. Durable when it returns. Ends the promise that was made for its recovery or an
    /// earlier one.
    /// </summary>
    /// <exception cref="StorageIoException">It could not be written.</exception>
    public void Keep(ClusterRecord record)
    {
        lock (_gate)
        {
            if (_cluster is not null && (record.Recovery < _cluster.Recovery || record.Equals(_cluster)))
                return;
            WriteLocked(ClusterFile, RecordText.Format(record) + "\n");
            _cluster = record.Clone();
        }
    }

    /// <summary>Keeps the nodes of the cluster, if they are others than before. Durable when it returns.</summary>
    /// <exception cref="StorageIoException">They could not be written.</exception>
    public void Keep(IReadOnlyList<NodeRecord> nodes)
    {
        lock (_gate)
        {
            if (_areNodesDurable && nodes.SequenceEqual(_nodes))
                return;
            // A write that fails may have arrived. So the nodes are written again, even if they are the same as before.
            _areNodesDurable = false;
            WriteLocked(NodesFile, string.Concat(nodes.Select(static node => RecordText.Format(node) + "\n")));
            (_nodes, _areNodesDurable) = (nodes, true);
        }
    }

    /// <summary>Binds this node to a recovery: from now on <see cref="TryKeep"/> refuses every record of an earlier one. Durable when it returns.</summary>
    /// <returns>Why not; null if it is bound.</returns>
    /// <exception cref="StorageIoException">It could not be written, so this process is not bound. If it arrived nevertheless, it binds the next process for
    /// its time.</exception>
    public string? TryBind(RecoveryClaim claim)
    {
        lock (_gate)
        {
            if (_cluster is not null && claim.Recovery <= _cluster.Recovery)
                return $"it has joined recovery {_cluster.Recovery}";
            if (BoundLocked() is { } bound && !bound.Equals(claim) && claim.Recovery <= bound.Recovery)
                return $"it is bound to recovery {bound.Recovery}, which node {bound.Node} makes";
            WriteLocked(BoundFile, RecordText.Format(claim) + "\n");
            (_bound, _boundSince) = (claim.Clone(), _clock.GetTimestamp());
            return null;
        }
    }

    /// <summary>That recovery will never be complete. Does nothing if this node is bound to another one or none.</summary>
    /// <exception cref="StorageIoException">The file could not be deleted. The promise remains until its time is over.</exception>
    public void Release(RecoveryClaim claim)
    {
        lock (_gate)
        {
            if (_bound is null || !_bound.Equals(claim))
                return;
            DeleteBoundLocked();
            _bound = null;
        }
    }

    private static string NameOf(ShardId shard) => ShardPrefix + shard.ToString(null, CultureInfo.InvariantCulture);

    // A promise that a crash leaves behind counts from the next start on, so it lasts longer and never shorter.
    private RecoveryClaim? BoundLocked()
    {
        Invariant.CheckHeld(_gate);
        if (_bound is null || (_cluster is not null && _cluster.Recovery >= _bound.Recovery))
            return null;
        if (_clock.GetElapsedTime(_boundSince) < BoundTimeMax)
            return _bound;
        // The promise has expired, whether or not the file can be deleted.
        _bound = null;
        DeleteBoundLocked();
        return null;
    }

    private void DeleteBoundLocked()
    {
        Invariant.CheckHeld(_gate);
        _files.Delete(Path.Combine(_path, BoundFile));
        _files.SyncDirectory(_path);
    }

    private void Read(string directory)
    {
        lock (_gate)
        {
            if (!_files.DirectoryExists(_path))
                return;
            // An earlier process may have ended between a rename and the sync of the directory. Whoever acts on what is read here must not find the copy before
            // after a power loss.
            MakeDirectoryDurableLocked();
            _files.SyncDirectory(_path);
            foreach (var name in _files.List(_path))
            {
                if (name == ClusterFile)
                    _cluster = TryParse<ClusterRecord>(TryRead(name)) ?? throw Damaged(directory, name);
                else if (name == BoundFile)
                    (_bound, _boundSince) = (TryParse<RecoveryClaim>(TryRead(name)) ?? throw Damaged(directory, name), _clock.GetTimestamp());
                else if (name == NodesFile)
                    (_nodes, _areNodesDurable) = (ParseNodes(TryRead(name) ?? ""), true);
                else if (name.StartsWith(ShardPrefix, StringComparison.Ordinal)
                    && !name.EndsWith(DurableFile.IncomingSuffix, StringComparison.Ordinal) && TryParse<ShardRecord>(TryRead(name)) is { } record)
                    _shards[record.ShardId] = record;
            }
        }
    }

    private static IReadOnlyList<NodeRecord> ParseNodes(string text) =>
        [.. text.Split('\n', StringSplitOptions.RemoveEmptyEntries).Select(TryParse<NodeRecord>).OfType<NodeRecord>()];

    private static DirectoryFormatException Damaged(string directory, string name) => new(
        directory, $"its file 'known/{name}' is damaged or cannot be read, so it is not known which state of the coordinator this node must refuse. "
            + "Nothing was changed. Move the directory away and start the node with an empty one; its replicas are then rebuilt from the other nodes");

    // Returns the content of a file; null if it cannot be read, or is not what was written.
    private string? TryRead(string name)
    {
        byte[] content;
        try
        {
            using var file = _files.Open(Path.Combine(_path, name), new StorageFileOptions(StorageFileMode.ReadOnly));
            // A directory under that name has a length, too.
            if (file.Length > FileBytesMax)
                return null;
            content = new byte[file.Length];
            content = content[..file.Read(content, 0)];
        }
        catch (StorageIoException)
        {
            return null;
        }
        var text = Encoding.UTF8.GetString(content);
        var end = text.LastIndexOf(ChecksumPrefix, StringComparison.Ordinal);
        return end >= 0 && text[..end] is var body && text[end..] == ChecksumOf(body) ? body : null;
    }

    private static string ChecksumOf(string body) =>
        string.Create(CultureInfo.InvariantCulture, $"{ChecksumPrefix}{Crc32C.Of(Encoding.UTF8.GetBytes(body)):x8}\n");

    private static T? TryParse<T>(string? text)
        where T : class, Google.Protobuf.IMessage, new()
    {
        try
        {
            return text is null ? null : RecordText.Parse<T>(text);
        }
        catch (CoordinatorRecordException)
        {
            return null;
        }
    }

    private void MakeDirectoryDurableLocked()
    {
        Invariant.CheckHeld(_gate);
        _files.SyncDirectory(Path.GetDirectoryName(_path)!);
        _isDirectoryDurable = true;
    }

    private void WriteLocked(string name, string body)
    {
        Invariant.CheckHeld(_gate);
        if (!_isDirectoryDurable)
        {
            _files.CreateDirectory(_path);
            MakeDirectoryDurableLocked();
        }
        DurableFile.Replace(_files, Path.Combine(_path, name), Encoding.UTF8.GetBytes(body + ChecksumOf(body)));
    }
}
