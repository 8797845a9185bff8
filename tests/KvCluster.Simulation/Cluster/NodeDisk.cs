using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// A node's disk with the directory of its replica, and the disk's faults: flipped bits, calls that fail or falsely succeed, a disk that is slow,
/// copied or lost.
/// </summary>
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

    private (SimulatedDisk Files, ReplicaId Replica, ulong Starts)? _copy;
    private bool _isSlow;
    private long _slowUntilUs = -SlowSyncUs;
    private bool _verifiesSlowly;

    public SimulatedDisk Files { get; private set; } = new();

    /// <summary>It was damaged. The replica may refuse to start, or stop, and is then lost.</summary>
    public bool IsDamaged { get; private set; }

    /// <summary>It has lost something at some time: a bit, everything, or all since a copy was made.</summary>
    public bool HasLost { get; private set; }

    /// <summary>A call has failed, and the process must end.</summary>
    public bool HasFailed { get; private set; }

    /// <summary>A call is about to fail.</summary>
    public bool MayErr => Files.Fault is not null;

    /// <summary>It works at its ordinary speed and has space.</summary>
    public bool Works => !_isSlow && !IsDamaged && Files.Refuse is null && Files.Fault is null && Files.CapacityBytes == long.MaxValue;

    /// <summary>It is slow, or has been so lately that a write may still take as long as one then did.</summary>
    public bool MayWriteSlowly => _isSlow || run.NowUs < _slowUntilUs + SlowSyncUs;

    /// <summary>The number of the last process that started from it or has set its content aside.</summary>
    public ulong LastProcess { get; set; }

    /// <summary>The longest time that a write of the journal takes.</summary>
    public long SyncUs => _isSlow ? SlowSyncUs : run.Conditions.SyncUs;

    /// <summary>The longest time that a background work item takes.</summary>
    public long BackgroundUs => _verifiesSlowly ? SlowVerificationUs : PrefetchUs;

    /// <summary>
    /// The longest time that a work item takes which reads pages ahead. It has a thread of its own, so what is verified slowly does not delay it.
    /// </summary>
    public long PrefetchUs => 5 * run.Conditions.SyncUs;

    public ReplicaStore OpenStore(StoreContext context)
    {
        Files.CreateDirectory(Root);
        Files.SyncDirectory("/");
        return Files.DirectoryExists(Directory)
            ? ReplicaStore.Open(context, Directory, mayRecover: true)
            : ReplicaStore.Create(context, Directory, new ControlState { ReplicaId = node.ReplicaId, Shard = new(0) });
    }

    /// <summary>The hard state of the replica, or null if there is none.</summary>
    public ControlState? ReadControl()
    {
        if (!Files.DirectoryExists(Directory))
            return null;
        using var control = ControlFile.TryOpen(Files, new StoreLayout(Directory).Control);
        return control?.State;
    }

    /// <summary>Removes the replica's directory. The node's process must not run.</summary>
    public void Empty()
    {
        Files.Restart(UnsyncedWrites.Kept);
        Files.CreateDirectory(Root);
        Files.DeleteDirectory(Directory);
        Files.SyncDirectory(Root);
        IsDamaged = false;
    }

    /// <summary>The process has ended, and so has a fault of its calls.</summary>
    public void StopFailing()
    {
        Files.Refuse = null;
        HasFailed = false;
    }

    /// <summary>Restarts after a power loss, with some effect on unsynced writes.</summary>
    public void Restart() => Files.Restart((UnsyncedWrites)run.Random.Next(4), run.Random.Next());

    /// <summary>Flips a bit in one of the replica's files, while the replica runs or is down.</summary>
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

    /// <summary>
    /// While the process is down, flips a bit in one of the two meta pages or one of the two slots of the control file. The other one must suffice.
    /// </summary>
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
        run.Trace($"a bit of {path} of node {node.Id} flips at {offset}, in one of two copies");
        Files.FlipBit(path, offset);
        run.Tally.Count(ClusterFault.DamageSpare);
        HasLost = true;
    }

    /// <summary>Power is lost in the middle of one of the next calls.</summary>
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

    /// <summary>
    /// One of the next calls fails, in this process or the next. If the failure is reported, and is not a want of space, the process must end. If not, it may
    /// be detected later and may cost this replica.
    /// </summary>
    public void Err(ClusterFault fault)
    {
        var kind = fault switch
        {
            ClusterFault.DiskShortWrite => DiskFault.ShortWrite,
            ClusterFault.DiskSyncLosesData => DiskFault.SyncLosesData,
            ClusterFault.DiskNoRoom => DiskFault.NoRoom,
            ClusterFault.DiskNoRoomAfterwards => DiskFault.NoRoomAfterwards,
            ClusterFault.DiskErrorAfterwards => DiskFault.ErrorAfterwards,
            ClusterFault.DiskLostWrite => DiskFault.LostWrite,
            ClusterFault.DiskMisdirectedWrite => DiskFault.MisdirectedWrite,
            _ => DiskFault.Error,
        };
        var operation = fault switch
        {
            ClusterFault.DiskError or ClusterFault.DiskErrorAfterwards or ClusterFault.DiskNoRoom or ClusterFault.DiskNoRoomAfterwards => null,
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
            // A disk that is full ends nothing.
            HasFailed |= !costs && fault is not (ClusterFault.DiskNoRoom or ClusterFault.DiskNoRoomAfterwards);
            return kind;
        };
    }

    /// <summary>Writes take many times as long for a while.</summary>
    public void SlowDown(long forUs)
    {
        run.Trace($"node {node.Id} has a slow disk");
        _isSlow = true;
        run.Time.After(forUs, () => (_isSlow, _slowUntilUs) = (false, run.NowUs));
    }

    /// <summary>Background work takes many times as long for a while.</summary>
    public void SlowVerification(long forUs)
    {
        run.Trace($"node {node.Id} verifies slowly");
        _verifiesSlowly = true;
        run.Time.After(forUs, () => _verifiesSlowly = false);
    }

    /// <summary>It has little space for a while.</summary>
    /// <param name="leftBytesMax">The maximum of free space.</param>
    public void Fill(int leftBytesMax)
    {
        Files.CapacityBytes = Files.UsedBytes + run.Random.NextInt64(leftBytesMax);
        run.Time.After(run.Random.NextInt64(200_000, 1_500_000), () => Files.CapacityBytes = long.MaxValue);
    }

    /// <summary>It is lost, and another one replaces it.</summary>
    public void Lose()
    {
        run.Tally.Count(ClusterFault.LoseDisk);
        HasLost = true;
    }

    /// <summary>Keeps a copy while the process is down.</summary>
    public void Copy()
    {
        run.Trace($"the disk of node {node.Id} is copied");
        _copy?.Files.Dispose();
        _copy = (Files.Copy(), node.ReplicaId, LastProcess);
    }

    /// <summary>While the process is down, replaces the content with the copy.</summary>
    /// <returns>The replica in the copy, or null if there is no copy.</returns>
    public ReplicaId? Restore()
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

    /// <summary>Faults are over: it works, has space and has its ordinary speed.</summary>
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
