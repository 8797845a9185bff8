// The copies of replicas that were set aside: aside/{shard}, and aside/{shard}-later with less than that one. They are kept for whoever wants to examine them,
// and may have the newest data there is, so nothing here decides that one is deleted: Placement/CopyRelease.cs does, and an operator with `kv-node aside
// remove`, from another process and while the node runs. Any thread; an exception is an IOException, and the copy stays.
//
// A copy is deleted in steps: it is renamed to {name}.held, it is compared with what was decided about, it is renamed to {name}.released, which is durable, and
// then its files are deleted. A crash leaves {name}.held, which gets its name again, or {name}.released, which is deleted. A copy is never left without some of
// its files under its own name.
using System.Globalization;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Recovery;

namespace KvCluster.Node.Hosting;

/// <summary>A copy that was set aside.</summary>
/// <param name="Name">Its name in the directory.</param>
/// <param name="Shard">The shard.</param>
/// <param name="Path">Its path.</param>
internal sealed record AsideCopy(string Name, ShardId Shard, string Path);

/// <summary>Keeps, lists and deletes the copies of a data directory.</summary>
/// <param name="files">The disk.</param>
/// <param name="path">The directory of the copies, which exists once there is one.</param>
internal sealed class AsideCopies(IFileSystem files, string path)
{
    /// <summary>Suffix of a copy that has less than one set aside before.</summary>
    private const string LesserSuffix = "-later";

    private const string HeldSuffix = ".held";
    private const string ReleasedSuffix = ".released";

    private readonly Lock _gate = new();

    /// <summary>The directory of the copies.</summary>
    public string Location => path;

    /// <summary>Moves a replica's directory here (<see cref="NodeDirectory.SetAside"/>). Durable when it returns, except for the name that it leaves.</summary>
    public void Add(ShardId shard, string replica)
    {
        lock (_gate)
        {
            files.CreateDirectory(path);
            files.SyncDirectory(Path.GetDirectoryName(path)!);
            var aside = Path.Combine(path, shard.ToString(null, CultureInfo.InvariantCulture));
            if (files.DirectoryExists(aside) && KeptCopy.NewestEtagOf(files, replica) < KeptCopy.NewestEtagOf(files, aside))
                aside += LesserSuffix;
            files.DeleteDirectory(aside);
            files.Rename(replica, aside);
            files.SyncDirectory(path);
        }
    }

    /// <summary>The copies, by name.</summary>
    public IReadOnlyList<AsideCopy> List()
    {
        var copies = new List<AsideCopy>();
        if (!files.DirectoryExists(path))
            return copies;
        foreach (var name in files.List(path))
        {
            var number = name.EndsWith(LesserSuffix, StringComparison.Ordinal) ? name[..^LesserSuffix.Length] : name;
            if (uint.TryParse(number, NumberStyles.None, CultureInfo.InvariantCulture, out var shard))
                copies.Add(new AsideCopy(name, new(shard), Path.Combine(path, name)));
        }
        return copies;
    }

    /// <summary>The length of the files of a copy.</summary>
    public static long BytesOf(AsideCopy copy) => LengthOf(copy.Path);

    /// <summary>The length of all files here.</summary>
    public long Bytes() => Directory.Exists(path) ? LengthOf(path) : 0;

    /// <summary>Deletes a copy. False, and nothing is changed, if it is no longer the one that was decided about.</summary>
    /// <param name="copy">The copy.</param>
    /// <param name="replica">The replica whose copy it was when that was decided; none if its control file did not tell.</param>
    public bool TryRelease(AsideCopy copy, ReplicaId replica)
    {
        lock (_gate)
        {
            TidyLocked();
            var (held, released) = (copy.Path + HeldSuffix, copy.Path + ReleasedSuffix);
            if (!files.DirectoryExists(copy.Path) || files.DirectoryExists(held))
                return false;
            files.Rename(copy.Path, held);
            if (ReplicaIn(held) != replica)
            {
                files.Rename(held, copy.Path);
                return false;
            }
            files.Rename(held, released);
            files.SyncDirectory(path);
            files.DeleteDirectory(released);
            files.SyncDirectory(path);
            return true;
        }
    }

    /// <summary>Completes what a crash has interrupted.</summary>
    public void Tidy()
    {
        lock (_gate)
            TidyLocked();
    }

    private void TidyLocked()
    {
        Invariant.CheckHeld(_gate);
        if (!files.DirectoryExists(path))
            return;
        foreach (var name in files.List(path))
        {
            var left = Path.Combine(path, name);
            if (name.EndsWith(ReleasedSuffix, StringComparison.Ordinal))
                files.DeleteDirectory(left);
            else if (name.EndsWith(HeldSuffix, StringComparison.Ordinal) && !files.DirectoryExists(left[..^HeldSuffix.Length]))
                files.Rename(left, left[..^HeldSuffix.Length]);
        }
    }

    private ReplicaId ReplicaIn(string directory)
    {
        try
        {
            return ControlFile.StateOf(files, directory)?.ReplicaId ?? ReplicaId.None;
        }
        catch (Exception unreadable) when (unreadable is StorageIoException or FormatVersionException)
        {
            return ReplicaId.None;
        }
    }

    private static long LengthOf(string directory) =>
        new DirectoryInfo(directory).EnumerateFiles("*", SearchOption.AllDirectories).Sum(static file => file.Length);
}
