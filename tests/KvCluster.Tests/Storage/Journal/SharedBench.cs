using System.Globalization;
using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Shared;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;
using KvCluster.Tests.Storage.Store;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>
/// Some stores of a node with a shared journal on a simulated disk, run on the test's thread. They share their executors, which run in seeded order. Each store
/// leads and commits what is durable, and has promised the epoch that it leads.
/// </summary>
internal sealed class SharedBench : IDisposable
{
    public const string Root = "/node";

    /// <summary>The shortest file of a shared journal.</summary>
    public const int FileBytes = SharedFile.HeaderBytes + SharedBlock.BytesMax;
    private const string LastKey = "last";
    private readonly StepExecutor _writer = new();
    private readonly StepExecutor[] _lanes;
    private readonly StepExecutor _aside = new();
    private readonly StepExecutor _checkpoints = new();
    private readonly StepExecutor _syncs = new();
    private readonly StepExecutor _completions = new();
    private readonly Random _random;
    private readonly StoreOptions _options;
    private readonly List<SharedBenchStore> _stores = [];
    private SharedJournal? _shared;
    private bool _runsNothingBeside;

    public SharedBench(SimulatedDisk? disk = null, int seed = 1, int lanes = 2, int stores = 3, StoreOptions? options = null)
    {
        Disk = disk ?? new SimulatedDisk();
        Disk.RemovesNameByName = true;
        Stores = stores;
        _random = new Random(seed);
        _options = (options ?? StoreBench.SmallOptions) with { JournalWrites = lanes, SharesJournal = true };
        _lanes = [.. Enumerable.Range(0, lanes).Select(static _ => new StepExecutor())];
    }

    public SimulatedDisk Disk { get; }

    public ManualTime Time { get; } = new();

    public int Stores { get; }

    public IReadOnlyList<SharedBenchStore> All => _stores;

    public SharedJournal Shared => _shared ?? throw new InvalidOperationException("The stores are not open.");

    /// <summary>What the last open did with the shared journal that it found.</summary>
    public SharedJournalReplay? Replay { get; private set; }

    /// <summary>Runs what posts to it when the shared journal has work in the background.</summary>
    public StepExecutor Syncs => _syncs;

    public SharedBenchStore this[int store] => _stores[store];

    /// <summary>The paths of the shared journal's files.</summary>
    public static IEnumerable<string> FilesOf(SimulatedDisk disk) =>
        disk.DirectoryExists($"{Root}/shared") ? disk.List($"{Root}/shared").Select(static name => $"{Root}/shared/{name}") : [];

    public static string DirectoryOf(int store) => $"{Root}/shards/{store + 1}";

    /// <summary>The replicas' directories, as a node lists them.</summary>
    public static string[] DirectoriesOn(SimulatedDisk disk) =>
        disk.DirectoryExists($"{Root}/shards")
            ? [.. disk.List($"{Root}/shards").Where(static name => !name.Contains('.', StringComparison.Ordinal))
                .Select(static name => $"{Root}/shards/{name}")]
            : [];

    /// <summary>Settles what the last process left, as a node does when it starts.</summary>
    public static SharedJournalReplay Settle(SimulatedDisk disk) => SharedJournalReplay.Settle(disk, Root, DirectoriesOn(disk));

    /// <summary>Opens or creates the stores and runs until they lead and a file of the shared journal is ready.</summary>
    public SharedBench Open(ulong firstReplica = 1)
    {
        Disk.DuringWrite = RunBeside;
        if (!Disk.DirectoryExists($"{Root}/shards"))
            Disk.CreateDirectories($"{Root}/shards");
        Replay = Settle(Disk);
        _shared = new SharedJournal(Disk, Root, 0x5EED_0000_0000_0001 + (ulong)Disk.Calls, FileBytes, _lanes, _syncs);
        for (var store = 0; store < Stores; store++)
            OpenStore(store, store == 0 ? firstReplica : null);
        // What they write at first meets, and so is asked of the shared journal.
        RunToJournals();
        RunUntilIdle();
        return this;
    }

    /// <summary>What a store has from its node.</summary>
    public StoreContext NewContext() => new(Disk, _writer, _lanes, _checkpoints, Time, NullLogger.Instance, _options, _completions)
    {
        SharedJournal = _shared,
        JournalAside = _aside,
        TailReads = _checkpoints,
    };

    /// <summary>Opens one store, or creates it with this replica id.</summary>
    public SharedBenchStore OpenStore(int store, ulong? replica = null)
    {
        var opened = new SharedBenchStore(NewContext(), DirectoryOf(store), new StoreIdentity(new(replica ?? (ulong)store + 1), new((uint)store + 1), 0));
        if (store < _stores.Count)
            _stores[store] = opened;
        else
            _stores.Add(opened);
        return opened;
    }

    /// <summary>Closes one store as a node does that goes on. Its directory may be moved from here on.</summary>
    public void CloseStore(int store) => CloseStore(store, RunUntilIdle);

    /// <summary>The same, where something else runs the executors.</summary>
    public void CloseStore(int store, Action run)
    {
        var closed = _stores[store].Store.CloseAsync();
        run();
        Assert.True(closed.IsCompletedSuccessfully || Disk.IsOff, $"The store is not closed: {closed.Exception}");
    }

    /// <summary>Ends as a node that is told to stop: the stores are closed, and then the shared journal.</summary>
    public void Stop()
    {
        for (var store = 0; store < _stores.Count; store++)
            CloseStore(store);
        _stores.Clear();
        _shared!.Dispose();
        _shared = null;
    }

    /// <summary>Ends as a process that dies: nothing that waits is executed, and nothing is synced.</summary>
    public void Die()
    {
        foreach (var executor in (StepExecutor[])[_writer, .. Journals, _checkpoints, _syncs])
            executor.Clear();
        Disk.SyncsNothing = true;
        foreach (var store in _stores)
            store.Store.Dispose();
        _stores.Clear();
        // After a failure it leaves everything as it is.
        _shared?.Fail(new SimulatedCrashException());
        _shared?.Dispose();
        _shared = null;
        Disk.SyncsNothing = false;
        while (_completions.RunOne())
        {
        }
    }

    /// <summary>
    /// Runs one item of an executor chosen by the seed. False if none waits. The lanes take their time, so that writes of several stores gather.
    /// </summary>
    public bool Step()
    {
        StepExecutor[] all = [_writer, .. Journals, _checkpoints, _syncs, _completions];
        var waiting = all.Where(static executor => executor is { Count: > 0, IsRunning: false }).ToArray();
        if (waiting.Length == 0)
            return false;
        var chosen = waiting[_random.Next(waiting.Length)];
        if (_lanes.Contains(chosen) && waiting[0] == _writer && _random.Next(4) > 0)
            chosen = _writer;
        return chosen.RunOne();
    }

    public void RunUntilIdle()
    {
        while (Step())
        {
        }
    }

    /// <summary>Runs everything except the lanes, and so leaves what the stores have to write with them.</summary>
    public void RunToJournals() => RunAlone(_writer, _aside, _checkpoints, _completions);

    /// <summary>Runs everything except what the lanes leave to the lane aside.</summary>
    public void RunButAside() => RunAlone([_writer, .. _lanes, _checkpoints, _syncs, _completions]);

    /// <summary>Runs everything except what the shared journal does in the background.</summary>
    public void RunButSyncs()
    {
        var isRunning = true;
        while (isRunning)
        {
            RunToJournals();
            isRunning = Array.Exists(_lanes, static lane => lane.RunOne());
        }
    }

    /// <summary>Has these stores write one request each, together in one block if there is one lane, and runs until they are answered.</summary>
    public void WriteTogether(int valueBytes, params int[] stores) => WriteTogether(valueBytes, RunUntilIdle, stores);

    /// <summary>The same, where something else runs the executors.</summary>
    public void WriteTogether(int valueBytes, Action run, params int[] stores)
    {
        var blocks = Shared.Blocks;
        var answers = Array.ConvertAll(stores, store => _stores[store].SubmitNext(valueBytes));
        RunToJournals();
        run();
        Assert.All(answers, static answer => Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome));
        if (_lanes.Length == 1)
            Assert.Equal(blocks + 1, Shared.Blocks);
    }

    /// <summary>The blocks that a recovery would find, in their order, each with its file and its offset there.</summary>
    public static List<(string Path, int Offset, SharedBlock Block)> BlocksOf(SimulatedDisk disk)
    {
        var all = new List<(string Path, int Offset, SharedBlock Block)>();
        foreach (var path in FilesOf(disk))
        {
            var bytes = disk.ReadAll(path);
            for (var at = SharedFile.HeaderBytes; at < bytes.Length; at += AlignedBuffer.Alignment)
            {
                if (SharedBlock.TryRead(bytes.AsSpan(at), path, out var block))
                    all.Add((path, at, block));
            }
        }
        return [.. all.OrderBy(static found => found.Block.Number)];
    }

    /// <summary>The row of the recovery decisions by which a store's directory is opened, and the last record that it has then.</summary>
    public static (string Row, Etag Last) RecoveryOf(SimulatedDisk disk, int store)
    {
        using var recovered = RecoveredStore.Open(
            new StoreContext(disk, new StepExecutor(), [new StepExecutor()], new StepExecutor(), new ManualTime(), NullLogger.Instance, StoreBench.SmallOptions,
                new StepExecutor()),
            DirectoryOf(store), mayRecover: true);
        return (recovered.Row.Name, recovered.Index.Last.Etag);
    }

    public void Dispose()
    {
        Die();
        Disk.Dispose();
    }

    private StepExecutor[] Journals => [.. _lanes, _aside];

    // Until they have nothing left. Nothing else runs while one of them writes.
    private void RunAlone(params StepExecutor[] executors)
    {
        _runsNothingBeside = true;
        while (Array.Exists(executors, static executor => executor.RunOne()))
        {
        }
        _runsNothingBeside = false;
    }

    /// <summary>While a journal writes, everything else may run: the other lanes, and syncs in the background.</summary>
    private void RunBeside(string path)
    {
        if (!_runsNothingBeside && Journals.Any(static executor => executor.IsRunning))
        {
            for (var steps = _random.Next(4); steps > 0; steps--)
                Step();
        }
    }

    /// <summary>What the requests write: each counts, and each puts a value that says whose it is.</summary>
    internal static void Fill(WriteRequest request, string name, int index, int valueBytes)
    {
        request.Put(StoreBench.Text($"key-{index % 5}"), StoreBench.Text(ValueOf(name, index, valueBytes)));
        request.Put(StoreBench.Text(LastKey), StoreBench.Text(index.ToString(CultureInfo.InvariantCulture)));
    }

    internal static string ValueOf(string name, int index, int valueBytes) => $"{name}, request {index}, {new string((char)('a' + (index % 26)), valueBytes)}";

    internal static int CountOf(string? last) => last is null ? 0 : int.Parse(last, CultureInfo.InvariantCulture) + 1;

    internal static string LastKeyText => LastKey;
}

/// <summary>A store of a <see cref="SharedBench"/>.</summary>
internal sealed class SharedBenchStore : IStoreEvents
{
    private readonly StoreContext _context;
    private readonly string _name;

    private readonly List<Task<WriteResult>> _answers = [];

    /// <summary>The number of its first request since it was opened.</summary>
    private int _first;

    public SharedBenchStore(StoreContext context, string directory, StoreIdentity identity)
    {
        _context = context;
        _name = $"replica {identity.ReplicaId.Value}";
        Store = context.Files.DirectoryExists(directory)
            ? ReplicaStore.Open(context, directory, expected: identity)
            : ReplicaStore.Create(context, directory, StandaloneStore.StateOf(identity));
        Store.Start(this);
        context.Writer.Post(new WorkAction(Lead));
    }

    public ReplicaStore Store { get; }

    /// <summary>The number of requests that are in the state that readers see.</summary>
    public int Count => SharedBench.CountOf(Read(SharedBench.LastKeyText));

    /// <summary>What it failed with, or null.</summary>
    public Exception? Failure => Store.Life.Failure;

    /// <summary>The number of requests up to the last one that was answered, from the beginning; 0 if none was submitted since it was opened.</summary>
    public int Answered => _first + _answers.TakeWhile(IsApplied).Count();

    /// <summary>Whether no request was answered before an earlier one.</summary>
    public bool IsAnsweredInOrder => !_answers.SkipWhile(IsApplied).Any(IsApplied);

    /// <summary>Submits the next request. Before the first one, the store must lead.</summary>
    public Task<WriteResult> SubmitNext(int valueBytes) => SubmitNext(_ => valueBytes);

    /// <summary>The same with a value whose length depends on the number of the request.</summary>
    public Task<WriteResult> SubmitNext(Func<int, int> valueBytes)
    {
        if (_answers.Count == 0)
            _first = Count;
        var index = _first + _answers.Count;
        var request = WriteRequest.Rent();
        SharedBench.Fill(request, _name, index, valueBytes(index));
        var answer = request.Completion.AsTask();
        Assert.True(Store.Requests.TrySubmit(request));
        _answers.Add(answer);
        return answer;
    }

    public string? Read(string key)
    {
        using var snapshot = Store.OpenSnapshot();
        return snapshot.TryGet(TreeId.Kv, StoreBench.Text(key), out var stored) ? System.Text.Encoding.UTF8.GetString(KvValue.Read(stored, out _)) : null;
    }

    /// <summary>Its content is what so many requests, each with a value of this length, make.</summary>
    public void CheckContent(Func<int, int> valueBytes, string story)
    {
        var count = Count;
        var expected = new SortedDictionary<string, string>(StringComparer.Ordinal);
        for (var index = 0; index < count; index++)
        {
            expected[$"key-{index % 5}"] = SharedBench.ValueOf(_name, index, valueBytes(index));
            expected[SharedBench.LastKeyText] = index.ToString(CultureInfo.InvariantCulture);
        }
        using var snapshot = Store.OpenSnapshot();
        var found = StoreBench.KeysOf(snapshot);
        Assert.True(expected.SequenceEqual(found), $"{story}: {_name} does not have the content of its first {count} requests.");
    }

    void IStoreEvents.Durable(RecordRef record) => Store.Writes.Commit(record.Etag);

    void IStoreEvents.ControlWritten(ControlState state)
    {
    }

    void IStoreEvents.Truncated(RecordRef last)
    {
    }

    void IStoreEvents.WorkQueued()
    {
        var wallTime = _context.Time.GetUtcNow();
        while (Store.Writes.CanAppend && (Store.Writes.TryAppendBatch(wallTime, out _) || !Store.Requests.Queue.IsEmpty))
            wallTime = _context.Time.GetUtcNow();
    }

    bool IStoreEvents.MayAnswerReads() => true;

    void IStoreEvents.Failed(Exception first)
    {
    }

    private static bool IsApplied(Task<WriteResult> answer) => answer.IsCompletedSuccessfully && StoreBench.Answer(answer).Outcome == WriteOutcome.Applied;

    private void Lead()
    {
        if (Store.Life.HasEnded)
            return;
        var epoch = Math.Max(Store.Log.Last.Epoch, Store.Durable.Control.PromisedEpoch) + 1;
        Store.Log.WriteControl(Store.Durable.Control with { PromisedEpoch = epoch });
        Store.Writes.Lead(epoch);
        Store.Writes.AppendEpochOpen(_context.Time.GetUtcNow());
    }
}
