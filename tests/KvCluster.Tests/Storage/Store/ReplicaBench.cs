using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>A replica's store on a simulated disk, owned by the test. It records events, and nothing is committed unless the test commits it.</summary>
internal sealed class ReplicaBench : IStoreEvents, IDisposable
{
    public const string DirectoryPath = "/shard";
    private readonly StepExecutor _work = new();
    private readonly StepExecutor _completions = new();
    private readonly string _directory;
    private readonly SimulatedDisk? _ownDisk;
    private TimeSpan _passed;

    public ReplicaBench(
        ReplicaId replica,
        StoreOptions? options = null, SimulatedDisk? disk = null, MemoryAccount? memory = null, StepExecutor? checkpoints = null, ManualTime? time = null,
        StepExecutor? prefetch = null, string directory = DirectoryPath, SharedDisk? sharedDisk = null,
        Func<ISerialExecutor, ISerialExecutor>? secondLane = null)
    {
        _directory = directory;
        _ownDisk = disk is null ? new SimulatedDisk() : null;
        Disk = disk ?? _ownDisk!;
        Time = time ?? new ManualTime();
        var lane = secondLane?.Invoke(_work) ?? _work;
        Context = new StoreContext(
            Disk, _work, [_work, lane], checkpoints ?? _work, Time, NullLogger.Instance, options ?? StoreBench.SmallOptions, _completions)
        {
            Memory = memory ?? new MemoryAccount(long.MaxValue, Time),
            Prefetch = prefetch,
            SharedDisk = sharedDisk ?? new SharedDisk(Time),
        };
        Store = Disk.DirectoryExists(directory)
            ? ReplicaStore.Open(Context, directory)
            : ReplicaStore.Create(Context, directory, new ControlState { ReplicaId = replica, Shard = new(1) });
        Store.Start(this);
    }

    public SimulatedDisk Disk { get; }

    public ManualTime Time { get; }

    public StoreContext Context { get; }

    public ReplicaStore Store { get; private set; }

    public List<RecordRef> DurableTold { get; } = [];

    public List<ControlState> ControlTold { get; } = [];

    public List<RecordRef> CutsTold { get; } = [];

    public Exception? FailureTold { get; private set; }

    public int WorkTold { get; private set; }

    /// <summary>The test has damaged the store, which is therefore not verified at the end.</summary>
    public bool IsDamaged { get; set; }

    public bool AnswersReads { get; set; } = true;

    /// <summary>Whether other shards seem to wait for the writer executor.</summary>
    public bool IsWriterBehind
    {
        get => _work.IsBehind;
        set => _work.IsBehind = value;
    }

    /// <summary>The owner of sessions where it does not matter.</summary>
    public static QuotaOwner Owner { get; } = new(7, 9);

    public static DateTimeOffset WallTime { get; } = DateTimeOffset.UnixEpoch.AddDays(20_000);

    /// <summary>Stops and restarts as a node that is told to stop.</summary>
    public void CloseAndReopen()
    {
        var closed = Store.CloseAsync();
        Run();
        Assert.True(closed.IsCompletedSuccessfully);
        Reopen();
    }

    /// <summary>Restarts as after the death of the process.</summary>
    public void Reopen()
    {
        _work.Clear();
        Store.Dispose();
        Store = ReplicaStore.Open(Context, _directory);
        Store.Start(this);
    }

    public void Run()
    {
        while (_work.RunOne() || _completions.RunOne())
        {
        }
    }

    /// <summary>Delivers answers to callers without running the disk or the store.</summary>
    public void Answer()
    {
        while (_completions.RunOne())
        {
        }
    }

    /// <summary>Leads an epoch and appends the record that opens it.</summary>
    public void Lead(ulong epoch)
    {
        Store.Writes.Lead(epoch);
        Store.Writes.AppendEpochOpen(WallTime);
        Run();
    }

    /// <summary>Submits a put and appends it as its own batch, not yet committed.</summary>
    public Task<WriteResult> Put(string key, string value) => Submit(request => request.Put(StoreBench.Text(key), StoreBench.Text(value)), thenAppend: true);

    /// <summary>Submits a request, appends all waiting requests as one batch, commits it and returns the answer.</summary>
    public WriteResult Append(Action<WriteRequest> fill)
    {
        var answer = Submit(fill, thenAppend: true);
        Commit(Store.Log.Last.Etag);
        Run();
        return StoreBench.Answer(answer);
    }

    /// <summary>
    /// Commits everything up to an etag, as the owner of a replica does. A follower applies it at once if it is at most a step; more waits for
    /// <see cref="ApplyAll"/>.
    /// </summary>
    public void Commit(Etag etag)
    {
        if (Store.Writes.IsLeading)
            Store.Writes.Commit(etag);
        else
            Store.Follower.Commit(etag);
    }

    /// <summary>Applies what is committed and waits, step by step, as the turns of an owner's loop do.</summary>
    public void ApplyAll()
    {
        while (Store.Follower.ApplyMore())
        {
        }
    }

    /// <summary>Appends the waiting requests as one batch, at <see cref="WallTime"/> plus this much.</summary>
    public bool AppendBatch(TimeSpan later = default)
    {
        if (later > _passed)
        {
            Time.Advance(later - _passed);
            _passed = later;
        }
        return AppendBatch(WallTime + later);
    }

    /// <summary>The same, with a wall clock that disagrees with the time that has passed.</summary>
    public bool AppendBatch(DateTimeOffset wallTime)
    {
        var appended = Store.Writes.TryAppendBatch(wallTime, out _);
        Run();
        return appended;
    }

    /// <summary>Opens a session with the default owner.</summary>
    public UInt128 OpenSession(UInt128 id)
    {
        Assert.Equal(WriteOutcome.Applied, TryOpenSession(id, Owner));
        return id;
    }

    /// <summary>Opens a session in one batch with the waiting requests.</summary>
    public WriteOutcome TryOpenSession(UInt128 id, QuotaOwner owner)
    {
        var answer = Submit(request => request.OpenSession(id, owner));
        AppendBatch();
        Commit(Store.Log.Last.Etag);
        Run();
        return StoreBench.Answer(answer).Outcome;
    }

    /// <summary>The ids of the sessions that are open.</summary>
    public IEnumerable<string> SessionIds() =>
        Sessions().Where(static entry => entry.StartsWith("01", StringComparison.Ordinal)).Select(static entry => entry[2..34]);

    /// <summary>The entries of the tree of sessions.</summary>
    public List<string> Sessions() => Entries(TreeId.Sessions);

    /// <summary>The entries of a tree.</summary>
    public List<string> Entries(TreeId tree)
    {
        var entries = new List<string>();
        using var snapshot = Store.OpenSnapshot();
        using var cursor = snapshot.Cursor(tree);
        while (cursor.MoveNext())
            entries.Add($"{Convert.ToHexString(cursor.Key)} = {Convert.ToHexString(cursor.Value)}");
        return entries;
    }

    public Task<WriteResult> Submit(Action<WriteRequest> fill, bool thenAppend = false)
    {
        var request = WriteRequest.Rent();
        fill(request);
        var answer = request.Completion.AsTask();
        Assert.True(Store.Requests.TrySubmit(request));
        if (thenAppend)
            Assert.True(AppendBatch());
        return answer;
    }

    /// <summary>The bodies after a record.</summary>
    public List<ReadOnlyMemory<byte>> BodiesAfter(Etag etag)
    {
        var bodies = new List<ReadOnlyMemory<byte>>();
        Assert.True(Store.Reader.ReadBodies(etag, int.MaxValue, bodies) >= 0);
        return bodies;
    }

    /// <summary>Appends all records that the leader has after this replica's last one.</summary>
    public void Follow(ReplicaBench leader)
    {
        foreach (var body in leader.BodiesAfter(Store.Log.Last.Etag))
            Assert.True(Store.TryAppend(body, out _));
        Run();
    }

    public string? Read(string key)
    {
        using var snapshot = Store.OpenSnapshot();
        return snapshot.TryGet(TreeId.Kv, StoreBench.Text(key), out var stored)
            ? System.Text.Encoding.UTF8.GetString(KvValue.Read(stored, out _))
            : null;
    }

    /// <summary>The digest of the published state, which must have everything that is committed: one that is behind would look like a difference.</summary>
    public byte[] Digest()
    {
        Assert.False(Store.Committed.IsApplying, $"{Store.Committed.BytesWaiting} committed bytes wait to be applied.");
        using var snapshot = Store.OpenSnapshot();
        return TreeDigest.Of(snapshot);
    }

    public void Durable(RecordRef record) => DurableTold.Add(record);

    public void ControlWritten(ControlState state) => ControlTold.Add(state);

    public void Truncated(RecordRef last) => CutsTold.Add(last);

    public void WorkQueued() => WorkTold++;

    public bool MayAnswerReads() => AnswersReads;

    public void Failed(Exception first) => FailureTold = first;

    public void Dispose()
    {
        try
        {
            StoreBench.VerifyAtEnd(Store, Disk, IsDamaged);
        }
        finally
        {
            Store.Dispose();
            _ownDisk?.Dispose();
        }
    }
}
