using System.Text;
using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>A standalone store on a simulated disk, run on the test's thread. The executors run in seeded order.</summary>
internal sealed class StoreBench : IDisposable
{
    public const string DirectoryPath = "/shard";
    private readonly StepExecutor _writer = new();
    private readonly StepExecutor[] _lanes;
    private readonly StepExecutor _checkpoints = new();
    private readonly StepExecutor _completions = new();
    private readonly StepExecutor _prefetch = new();
    private readonly Random _random;
    private StandaloneStore? _standalone;
    private List<string>? _callsAfterFailure;
    private Func<string, string, StorageIoException?>? _refuseBefore;

    public StoreBench(SimulatedDisk? disk = null, int seed = 1, StoreOptions? options = null, bool prefetches = false, StepExecutor? tailReads = null)
    {
        Disk = disk ?? new SimulatedDisk();
        _random = new Random(seed);
        options ??= SmallOptions;
        _lanes = [.. Enumerable.Range(0, options.JournalWrites).Select(static _ => new StepExecutor())];
        Disk.DuringWrite = RunBeside;
        Context = new StoreContext(
            Disk, _writer, _lanes, _checkpoints, Time, NullLogger.Instance, options, _completions)
        {
            Prefetch = prefetches ? _prefetch : null,
            TailReads = tailReads ?? _checkpoints,
        };
    }

    /// <summary>
    /// Small files and steps, so that short runs roll over and recycle segments, and other work comes between the steps of a checkpoint's end.
    /// </summary>
    public static StoreOptions SmallOptions { get; } = new()
    {
        SegmentBytesMin = 16 << 10,
        SegmentBytesMax = 64 << 10,
        RetainedJournalBytes = 0,
        ReserveBytes = 16 << 10,
        // Time passes to the millisecond.
        ClockDriftPermille = 0,
        Pages = new PageStoreOptions { StepPages = 16 },
    };

    public SimulatedDisk Disk { get; }

    public ManualTime Time { get; } = new();

    public StoreContext Context { get; }

    /// <summary>The test has damaged the store, which is therefore not verified at the end.</summary>
    public bool IsDamaged { get; set; }

    /// <summary>Whether the writer executor runs something.</summary>
    public bool IsWriterStep => _writer.IsRunning;

    /// <summary>Whether the checkpoint executor runs something.</summary>
    public bool IsCheckpointStep => _checkpoints.IsRunning;

    public StandaloneStore Standalone => _standalone ?? throw new InvalidOperationException("The store is not open.");

    public ReplicaStore Store => Standalone.Store;

    /// <summary>Opens or creates the store and runs until it leads.</summary>
    public void Open()
    {
        _standalone = StandaloneStore.Open(Context, DirectoryPath);
        RunUntilIdle();
    }

    /// <summary>Closes the store as if the process had died: nothing that waits is executed.</summary>
    public void Close()
    {
        foreach (var executor in (StepExecutor[])[_writer, .. _lanes, _checkpoints, _prefetch])
            executor.Clear();
        _standalone?.Dispose();
        _standalone = null;
        if (_callsAfterFailure is not null)
            (Disk.Refuse, _callsAfterFailure) = (_refuseBefore, null);
        while (_completions.RunOne())
        {
        }
    }

    /// <summary>Whether the disk does not answer the thread that reads pages ahead.</summary>
    public bool PrefetchStands { get; set; }

    /// <summary>Runs one item of an executor chosen by the seed. False if none waits.</summary>
    public bool Step()
    {
        var hasRun = RunOne();
        if (_standalone?.Store.Life.Failure is not null && _callsAfterFailure is null)
            WatchCalls();
        return hasRun;
    }

    /// <summary>Notes the calls that change the disk, until the store is closed.</summary>
    private void WatchCalls()
    {
        var (calls, before) = (_callsAfterFailure, _refuseBefore) = ([], Disk.Refuse);
        Disk.Refuse = (operation, path) =>
        {
            calls.Add($"{operation} {path}");
            return before?.Invoke(operation, path);
        };
    }

    private bool RunOne()
    {
        StepExecutor[] all = [_writer, .. _lanes, _checkpoints, _completions, _prefetch];
        var waiting = all.Where(executor => executor is { Count: > 0, IsRunning: false } && !(PrefetchStands && executor == _prefetch)).ToArray();
        return waiting.Length > 0 && waiting[_random.Next(waiting.Length)].RunOne();
    }

    public void RunUntilIdle()
    {
        while (Step())
        {
        }
    }

    /// <summary>While one journal lane writes, the others run, so a later write may be durable first.</summary>
    private void RunBeside(string path)
    {
        if (_lanes.Any(lane => lane.IsRunning))
        {
            for (var steps = _random.Next(4); steps > 0; steps--)
                RunOne();
        }
    }

    /// <summary>
    /// A store that has failed changes nothing on the disk from then on and serves nothing, whatever it is asked for and however much time passes. What ran
    /// beside the step in which it failed was under way.
    /// </summary>
    public void CheckStaysDown()
    {
        Assert.NotNull(Store.Life.Failure);
        Assert.Equal(WriteOutcome.Stopped, Write(request => request.Put("more"u8, "1"u8)).Outcome);
        _ = Store.Checkpoints.RequestAsync();
        Time.Advance(TimeSpan.FromHours(7));
        RunUntilIdle();
        Assert.Equal([], _callsAfterFailure);
        Assert.Throws<StoreStoppedException>(() => Read("more"));
    }

    /// <summary>Submits a request. The queue must have a free place.</summary>
    public Task<WriteResult> Submit(Action<WriteRequest> fill)
    {
        var request = WriteRequest.Rent();
        fill(request);
        return (Standalone.TryWrite(request) ?? throw new InvalidOperationException("The queue is full.")).AsTask();
    }

    /// <summary>Submits a request and runs until it is answered.</summary>
    public WriteResult Write(Action<WriteRequest> fill)
    {
        var answer = Submit(fill);
        while (!answer.IsCompleted && Step())
        {
        }
        return Answer(answer);
    }

    /// <summary>The result of a task that must be complete.</summary>
    public static T Answer<T>(Task<T> task)
    {
        Assert.True(task.IsCompleted, "The task is not complete, and nothing is left to run.");
        return task.GetAwaiter().GetResult();
    }

    /// <summary>Writes a checkpoint of everything published.</summary>
    public void Checkpoint()
    {
        var done = Store.Checkpoints.RequestAsync();
        RunUntilIdle();
        Assert.True(done.IsCompletedSuccessfully, $"The checkpoint did not succeed: {done.Exception}");
    }

    public string? Read(string key)
    {
        using var snapshot = Standalone.OpenSnapshot();
        return snapshot.TryGet(TreeId.Kv, Text(key), out var stored)
            ? Encoding.UTF8.GetString(KvValue.Read(stored, out _))
            : null;
    }

    public SortedDictionary<string, string> ReadAllKeys()
    {
        using var snapshot = Standalone.OpenSnapshot();
        return KeysOf(snapshot);
    }

    /// <summary>All keys, in order, with their values.</summary>
    public static SortedDictionary<string, string> KeysOf(in ReadSnapshot snapshot)
    {
        var all = new SortedDictionary<string, string>(StringComparer.Ordinal);
        using var cursor = snapshot.Cursor(TreeId.Kv);
        while (cursor.MoveNext())
            all.Add(Encoding.UTF8.GetString(cursor.Key), Encoding.UTF8.GetString(KvValue.Read(cursor.Value, out _)));
        return all;
    }

    /// <summary>The members of each set, in order, with a space between them.</summary>
    public SortedDictionary<string, string> ReadAllSets()
    {
        using var snapshot = Standalone.OpenSnapshot();
        return SetsOf(snapshot);
    }

    /// <inheritdoc cref="ReadAllSets"/>
    public static SortedDictionary<string, string> SetsOf(in ReadSnapshot snapshot)
    {
        var all = new SortedDictionary<string, string>(StringComparer.Ordinal);
        using var cursor = snapshot.Cursor(TreeId.Sets);
        while (cursor.MoveNext())
        {
            var texts = new List<string>();
            using var members = cursor.Set.Members();
            while (members.MoveNext())
                texts.Add(Encoding.UTF8.GetString(members.Member));
            all.Add(Encoding.UTF8.GetString(cursor.Key), string.Join(' ', texts));
        }
        return all;
    }

    /// <summary>The files of a directory and of those in it, each with its checksum, to see that nothing was changed.</summary>
    public static List<string> FilesOf(SimulatedDisk disk, string directory) =>
        [.. PathsOf(disk, directory).Select(path => $"{path} {Crc32C.Of(disk.ReadAll(path)):X8}")];

    /// <summary>The paths of all files in a directory and in those in it.</summary>
    public static IEnumerable<string> PathsOf(SimulatedDisk disk, string directory) =>
        disk.List(directory).Select(name => $"{directory}/{name}").SelectMany(path => disk.FileExists(path) ? [path] : PathsOf(disk, path));

    public static byte[] Text(string text) => Encoding.UTF8.GetBytes(text);

    /// <summary>Walks the data file of a store that works. What a test does not look at must be whole, too.</summary>
    public static void VerifyAtEnd(ReplicaStore store, SimulatedDisk disk, bool isDamaged)
    {
        if (!isDamaged && !disk.IsOff && !store.Life.HasEnded && !store.Checkpoints.IsRunning)
            store.Pages.Verify();
    }

    public void Dispose()
    {
        try
        {
            if (_standalone is not null)
                VerifyAtEnd(Store, Disk, IsDamaged);
        }
        finally
        {
            Close();
            Disk.Dispose();
        }
    }
}
