using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;

namespace KvCluster.Simulation.Cluster;

/// <summary>A node's disk, the directory of its replica there, and what goes wrong with it: bits that flip, calls that fail or lie, a disk that is slow, copied or gone.</summary>
internal sealed class NodeDisk(ClusterRun run, ClusterNode node) : IDisposable
{
    private const string Root = "/data";
    private const string Directory = "/data/shard";

    // Many times the disk's ordinary time, and above the driver's limit for a slow disk.
    private const long SlowSyncUs = 900_000;

    // For each work item.
    private const long SlowVerificationUs = 300_000;

    // A batch takes about two calls, a checkpoint some dozens.
    private const int CrashWithinCalls = 60;

    private const int ErrWithinCalls = 40;

    // Syncs belong to checkpoints and new files, reads to starts and first touches.
    private const int ErrWithinRareCalls = 4;

    private (SimulatedDisk Files, ulong Replica, ulong Starts)? _copy;
    private bool _isSlow;
    private bool _verifiesSlowly;

    public SimulatedDisk Files { get; private set; } = new();

    /// <summary>It was damaged: the replica may refuse to start, or stop, and is then lost.</summary>
    public bool IsDamaged { get; private set; }

    /// <summary>It has lost something at some time: a bit, all of it, or what was written since a copy.</summary>
    public bool HasLost { get; private set; }

    /// <summary>A call has failed, and the process must end.</summary>
    public bool HasFailed { get; private set; }

    /// <summary>A call is about to go wrong.</summary>
    public bool MayErr => Files.Fault is not null;

    /// <summary>It does what it should, at its ordinary pace, and has room.</summary>
    public bool Works => !_isSlow && !IsDamaged && Files.Refuse is null && Files.Fault is null && Files.CapacityBytes == long.MaxValue;

    /// <summary>The number of the process that was the last to start from it, or has set aside what it holds.</summary>
    public ulong LastProcess { get; set; }

    /// <summary>The longest that a write of the journal takes.</summary>
    public long SyncUs => _isSlow ? SlowSyncUs : run.Conditions.SyncUs;

    /// <summary>The longest that an item of work takes for which nobody waits.</summary>
    public long BackgroundUs => _verifiesSlowly ? SlowVerificationUs : 5 * run.Conditions.SyncUs;

    public ReplicaStore OpenStore(StoreContext context)
    {
        Files.CreateDirectory(Root);
        Files.SyncDirectory("/");
        return Files.DirectoryExists(Directory)
            ? ReplicaStore.Open(context, Directory, mayRecover: true)
            : ReplicaStore.Create(context, Directory, new ControlState { ReplicaId = node.ReplicaId, Shard = 0 });
    }

    /// <summary>What the replica has promised; null: there is none.</summary>
    public ControlState? ReadControl()
    {
        if (!Files.DirectoryExists(Directory))
            return null;
        using var control = ControlFile.TryOpen(Files, new StoreLayout(Directory).Control);
        return control?.State;
    }

    /// <summary>Removes the replica's directory; the node's process does not run.</summary>
    public void Empty()
    {
        Files.Restart(UnsyncedWrites.Kept);
        Files.CreateDirectory(Root);
        Files.DeleteDirectory(Directory);
        Files.SyncDirectory(Root);
        IsDamaged = false;
    }

    /// <summary>The process has ended: a fault of its calls has ended with it.</summary>
    public void StopFailing()
    {
        Files.Refuse = null;
        HasFailed = false;
    }

    /// <summary>The power was off: makes something of what was not synced.</summary>
    public void Restart() => Files.Restart((UnsyncedWrites)run.Random.Next(4), run.Random.Next());

    /// <summary>One bit of one file of the replica changes, under a replica that works or in one that is down.</summary>
    public void Damage()
    {
        var files = Files.DirectoryExists(Directory) ? FilesIn(Directory).Where(file => Files.ReadAll(file).Length > 0).ToArray() : [];
        if (files.Length == 0)
            return;
        var path = files[run.Random.Next(files.Length)];
        // At a place that is probably in use, because nothing is read beyond.
        var length = Files.ReadAll(path).Length;
        var offset = run.Random.Next(run.Random.Next(2) == 0 ? length : Math.Min(length, 64 << 10));
        run.Trace($"a bit of {path} of node {node.Id} flips at {offset}");
        Files.FlipBit(path, offset);
        run.Tally.Count(ClusterFault.Damage);
        HasLost = true;
        IsDamaged = true;
    }

    /// <summary>While the process is down: one bit flips in one of the two meta pages or of the two slots of the control file. The other one must do.</summary>
    public void DamageSpare()
    {
        var layout = new StoreLayout(Directory);
        if (!Files.DirectoryExists(Directory) || Files.DirectoryExists(layout.Incoming) || layout.States(Files) is not [.., var state])
            return;
        var path = run.Random.Next(2) == 0 ? layout.Control : StoreLayout.Data(layout.State(state));
        var spareBytes = path == layout.Control ? ControlFile.SlotBytes : Page.Bytes;
        var offset = run.Random.Next(2 * spareBytes);
        // A write in progress at the crash, or an earlier bit flip, may have left only one.
        if (!BothAreWhole(path, isControl: path == layout.Control))
            return;
        run.Trace($"a bit of {path} of node {node.Id} flips at {offset}, in one of two that say the same");
        Files.FlipBit(path, offset);
        run.Tally.Count(ClusterFault.DamageSpare);
        HasLost = true;
    }

    /// <summary>The power goes in the middle of one of the next calls.</summary>
    public void CrashInCall()
    {
        if (node.IsUp)
            Files.CrashAtCall = Files.Calls + run.Random.Next(1, CrashWithinCalls);
    }

    /// <summary>One of the next writes or syncs fails, and the process must end then.</summary>
    public void Fail()
    {
        var left = run.Random.Next(1, 20);
        Files.Refuse = (operation, path) =>
        {
            if (operation is not ("Write" or "Sync" or "Sync directory" or "Resize") || --left > 0)
                return null;
            run.Trace($"on node {node.Id} the disk fails: {operation} {path}");
            if (!HasFailed)
                run.Tally.Count(ClusterFault.FailDisk);
            HasFailed = true;
            return new StorageIoException(operation, path, "input/output error");
        };
    }

    /// <summary>One of the next calls goes wrong, in this process or the next. Whoever is told must end; what nobody is told may be found later on, and may cost this replica.</summary>
    public void Err(ClusterFault fault)
    {
        var kind = fault switch
        {
            ClusterFault.DiskShortWrite => DiskFault.ShortWrite,
            ClusterFault.DiskSyncLosesData => DiskFault.SyncLosesData,
            ClusterFault.DiskLostWrite => DiskFault.LostWrite,
            ClusterFault.DiskMisdirectedWrite => DiskFault.MisdirectedWrite,
            _ => DiskFault.Error,
        };
        var operation = fault switch
        {
            ClusterFault.DiskError => null,
            ClusterFault.DiskReadError => "Read",
            ClusterFault.DiskSyncLosesData => "Sync",
            _ => "Write",
        };
        var costs = fault is ClusterFault.DiskReadError or ClusterFault.DiskLostWrite or ClusterFault.DiskMisdirectedWrite;
        var left = run.Random.Next(1, operation is "Sync" or "Read" ? ErrWithinRareCalls : ErrWithinCalls);
        Files.Fault = call =>
        {
            if ((operation is null ? !call.Changes : call.Operation != operation) || !call.Path.StartsWith(Directory, StringComparison.Ordinal) || --left > 0)
                return DiskFault.None;
            run.Trace($"on node {node.Id} the disk errs: {fault} at {call.Operation} {call.Path} {call.Offset}");
            run.Tally.Count(fault);
            Files.Fault = null;
            IsDamaged |= costs;
            HasLost |= costs;
            HasFailed |= !costs;
            return kind;
        };
    }

    /// <summary>Writes take many times as long for a while.</summary>
    public void SlowDown(long forUs)
    {
        run.Trace($"node {node.Id} has a slow disk");
        _isSlow = true;
        run.Time.After(forUs, () => _isSlow = false);
    }

    /// <summary>Background work takes many times as long for a while.</summary>
    public void SlowVerification(long forUs)
    {
        run.Trace($"node {node.Id} verifies slowly");
        _verifiesSlowly = true;
        run.Time.After(forUs, () => _verifiesSlowly = false);
    }

    /// <summary>It has little room for a while.</summary>
    /// <param name="leftBytesMax">The greatest room that is left.</param>
    public void Fill(int leftBytesMax)
    {
        Files.CapacityBytes = Files.UsedBytes + run.Random.NextInt64(leftBytesMax);
        run.Time.After(run.Random.NextInt64(200_000, 1_500_000), () => Files.CapacityBytes = long.MaxValue);
    }

    /// <summary>It is gone, and another one is in its place.</summary>
    public void Lose()
    {
        run.Tally.Count(ClusterFault.LoseDisk);
        HasLost = true;
    }

    /// <summary>While the process is down: keeps a copy.</summary>
    public void Copy()
    {
        run.Trace($"the disk of node {node.Id} is copied");
        _copy?.Files.Dispose();
        _copy = (Files.Copy(), node.ReplicaId, LastProcess);
    }

    /// <summary>While the process is down: the copy takes its place.</summary>
    /// <returns>The replica that the copy holds; null: there is no copy.</returns>
    public ulong? Restore()
    {
        if (_copy is not { } copy)
            return null;
        run.Trace($"the disk of node {node.Id} is restored from a copy, with replica {copy.Replica:x}");
        run.Tally.Count(ClusterFault.RestoreDisk);
        HasLost = true;
        Files.Dispose();
        (Files, LastProcess) = (copy.Files, copy.Starts);
        _copy = null;
        return copy.Replica;
    }

    /// <summary>Faults are over: it works, has room and is as fast as ever.</summary>
    public void Heal()
    {
        Files.CapacityBytes = long.MaxValue;
        Files.Refuse = null;
        Files.Fault = null;
        Files.CrashAtCall = 0;
        _isSlow = _verifiesSlowly = false;
    }

    public void Dispose()
    {
        Files.Dispose();
        _copy?.Files.Dispose();
    }

    private bool BothAreWhole(string path, bool isControl)
    {
        if (isControl)
        {
            using var control = ControlFile.TryOpen(Files, path);
            return control is { SlotsValid: 2 };
        }

        var pages = Files.ReadAll(path);
        return MetaPage.TryDecode(pages.AsSpan(0, Page.Bytes), path) is not null && MetaPage.TryDecode(pages.AsSpan(Page.Bytes, Page.Bytes), path) is not null;
    }

    private IEnumerable<string> FilesIn(string directory) => Files.List(directory)
        .Order(StringComparer.Ordinal)
        .Select(name => $"{directory}/{name}")
        .SelectMany(path => Files.DirectoryExists(path) ? FilesIn(path) : [path]);
}
