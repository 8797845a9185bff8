using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;

namespace KvCluster.Storage.Inspection;

/// <summary>
/// Builds a replica again from what can be read of it, for an operator who accepts that the rest is lost. The new directory is made and checked beside the
/// old one, which is then renamed. So nothing is changed in the old one, and a crash leaves one of the two in place, or both under names of their own. One
/// thread.
/// </summary>
internal sealed class StoreRecovery : IDisposable
{
    /// <summary>Suffix of the directory that is made.</summary>
    public const string NewSuffix = ".recovering";

    /// <summary>Suffix of the directory that was there before; a number follows if there are several.</summary>
    public const string OldSuffix = ".before-recovery";

    /// <summary>A lease that nobody exceeds. It is waited for if the promises are lost, because a leader may have a lease that this replica granted.</summary>
    private const long LeaseMsMax = 60_000;

    private readonly IFileSystem _disk;
    private readonly StoppedReplica _replica;
    private readonly ulong? _clusterHash;
    private readonly RecoverySource? _source;

    private StoreRecovery(IFileSystem disk, StoppedReplica replica, ulong? clusterHash)
    {
        (_disk, _replica) = (disk, replica);
        Report = StoreCheck.Run(replica);
        _source = RecoverySource.Choose(replica, Report.DamagedTrees);
        _clusterHash = replica.Control?.ClusterHash ?? clusterHash ?? HashOfEmbedded() ?? HashOfOthers();
    }

    /// <summary>What is wrong with the directory.</summary>
    public CheckReport Report { get; }

    /// <summary>Whether there is anything to do.</summary>
    public bool IsNeeded => Report.IsDamaged || Report.Row.Decision != RecoveryDecision.Open;

    /// <summary>Why it cannot be done; null if it can.</summary>
    public string? WhyNot => _source is null
        ? "neither meta page is intact and the journal does not begin with the shard's first record, so there is nothing to build the trees from"
        : _replica.Identity.ReplicaId.IsNone ? "the control file and the data file are lost, so nothing tells which replica this is"
        : _clusterHash is null ? "the control file is lost, and no other replica beside it tells the cluster. Name it with --cluster-hash; "
            + "'dump' of a replica of the same cluster prints it"
        : null;

    /// <summary>The last record that the result has.</summary>
    public RecordRef Last => _source!.Last;

    /// <summary>After <see cref="Run"/>: entries of sound pages that were left out because they cannot be decoded. <see cref="Report"/> names them.</summary>
    public long LeftOut { get; private set; }

    /// <summary>What a recovery would do, a line for each step. Called only if one is possible.</summary>
    public IEnumerable<string> Plan()
    {
        var source = _source!;
        yield return source.Meta is null ? "Build the trees from the journal alone, from the shard's first record on."
            : $"Copy all readable keys of the {(source.Meta == _replica.Newest ? "newest" : "older")} checkpoint, which covers "
                + $"{EtagText.Of(source.Meta.CheckpointPosition.Etag)}.";
        if (source.DamagedTrees.Contains(TreeId.Sessions))
            yield return "Leave out all sessions, because some cannot be read. A client that repeats a request may apply it twice, and keys that sessions own "
                + "stay.";
        yield return $"Apply the {source.Records.Count} records of the journal that follow. The result ends with {EtagText.Of(source.Last.Etag)}; "
            + "later changes, if there were any, are lost.";
        if (_replica.Control is null)
            yield return "Make a control file. The replica's votes and acknowledgements are lost, so another leader of the same epoch could be chosen.";
        if (_replica.Quarantined is { } reason)
            yield return $"Leave out the quarantine mark. The replica was quarantined ({reason}), and the node will trust what is recovered of it.";
        yield return $"Write this to '{_replica.Layout.Directory}{NewSuffix}', check it, rename '{_replica.Layout.Directory}' to '{OldName()}', and put the "
            + "new directory in its place.";
    }

    /// <summary>Begins: opens and checks a directory. Changes nothing.</summary>
    /// <param name="disk">The disk.</param>
    /// <param name="directory">The replica's directory.</param>
    /// <param name="clusterHash">The cluster, for a directory whose control file is lost.</param>
    /// <inheritdoc cref="StoppedReplica.Open" path="/exception"/>
    public static StoreRecovery Begin(IFileSystem disk, string directory, ulong? clusterHash = null)
    {
        var replica = StoppedReplica.Open(disk, Path.TrimEndingDirectorySeparator(Path.GetFullPath(directory)));
        try
        {
            return new StoreRecovery(disk, replica, clusterHash);
        }
        catch
        {
            replica.Dispose();
            throw;
        }
    }

    /// <summary>Does it. Durable when it returns.</summary>
    /// <returns>Where the old directory is now.</returns>
    /// <exception cref="StorageIoException">The disk has no room or failed. The old directory is where it was, or under the name in
    /// <see cref="Plan"/>.</exception>
    /// <exception cref="CorruptStoreException">The result is not intact, which is a bug. The old directory is where it was.</exception>
    public string Run()
    {
        Invariant.Check(WhyNot is null, $"A recovery was run that cannot be: {WhyNot}.");
        var source = _source!;
        var (old, made) = (_replica.Layout.Directory, _replica.Layout.Directory + NewSuffix);
        CheckRoom();
        // A program that could open the old file can open the new one.
        var version = source.Meta?.Version ?? MetaPage.FormatVersionMin;
        var pages = new PageStoreOptions
        {
            DividesValues = version >= MetaPage.FormatVersionOfDividedValues,
            CompressesValues = version >= MetaPage.FormatVersion,
        };
        var options = new StoreOptions { Pages = pages };
        StoreDirectory.Make(_disk, made, options, NewControl(source.Last.Etag), source.Last, pages => Fill(pages, source));
        if (StoreCheck.Run(_disk, made).Findings.FirstOrDefault(static finding => finding.IsDamage) is { } wrong)
            throw new CorruptStoreException($"The recovered copy in '{made}' is not intact, and was not put in place: {wrong.File}: {wrong.What}.");
        var kept = OldName();
        _disk.Rename(old, kept);
        _disk.Rename(made, old);
        StoreDirectory.SyncName(_disk, old);
        return kept;
    }

    /// <inheritdoc/>
    public void Dispose() => _replica.Dispose();

    private void CheckRoom()
    {
        var needed = _replica.DataBytes + (_source!.Records.Sum(static record => (long)record.Bytes) * 2) + (4 << 20);
        var parent = Path.GetDirectoryName(_replica.Layout.Directory)!;
        if (_disk.AvailableBytes(parent) is var available && available < needed)
            throw new StorageIoException(
                "recover into", parent, $"it may need {needed} bytes, but the disk has only {available}; nothing was changed", isDiskFull: true);
    }

    private void Fill(PageStore pages, RecoverySource source)
    {
        var findsLives = source.DamagedTrees.Contains(TreeId.Expiry) || source.DamagedTrees.Contains(TreeId.Owned);
        var salvaged = new SalvagedState(pages, source.Meta?.ShardTime ?? 0, findsLives);
        var hasSessions = !source.DamagedTrees.Contains(TreeId.Sessions);
        for (var tree = 0; tree < source.Meta?.Trees.Length; tree++)
        {
            if (((TreeId)tree != TreeId.Sessions || hasSessions) && ((TreeId)tree is not (TreeId.Expiry or TreeId.Owned) || !findsLives))
                salvaged.Copy(_replica.Space!, source.Meta.Trees[tree], (TreeId)tree);
        }
        using var reader = new SegmentReader(_replica.Files, StoreLayout.Journal(_replica.State!));
        foreach (var record in source.Records)
            salvaged.Apply(reader.ReadBody(record), hasSessions);
        salvaged.Finish(source.Last);
        LeftOut = salvaged.LeftOut;
    }

    /// <summary>The promises stay. What is lost is not named as acknowledged any more, or the engine would wait for it.</summary>
    private ControlState NewControl(Etag last)
    {
        var (replica, shard) = _replica.Identity;
        var promises = _replica.Control
            ?? new ControlState { ReplicaId = replica, Shard = shard, ClusterHash = _clusterHash!.Value, LeaseLongestMs = LeaseMsMax };
        // The leader of a later epoch is not known.
        if (promises.PromisedEpoch < last.Epoch)
            promises = promises with { PromisedEpoch = last.Epoch, PromisedLeader = default, PromisedIncarnation = default };
        return promises with { Committed = last, Acknowledged = last };
    }

    private string OldName()
    {
        var name = _replica.Layout.Directory + OldSuffix;
        for (var number = 2; _disk.DirectoryExists(name); number++)
            name = $"{_replica.Layout.Directory}{OldSuffix}-{number}";
        return name;
    }

    private ulong? HashOfEmbedded()
    {
        var embedded = StoreIdentity.Embedded;
        return _replica.Identity == (embedded.ReplicaId, embedded.Shard) ? embedded.ClusterHash : null;
    }

    /// <summary>The cluster of the other replicas in the same directory; null if there are none, or of several clusters.</summary>
    private ulong? HashOfOthers()
    {
        var parent = Path.GetDirectoryName(_replica.Layout.Directory)!;
        var hashes = _replica.Files.List(parent).Select(name => Path.Combine(parent, name)).Where(_replica.Files.DirectoryExists)
            .Select(path => ControlFile.StateOf(_replica.Files, path)?.ClusterHash).OfType<ulong>().Distinct().ToArray();
        return hashes is [var only] ? only : null;
    }
}
