using System.Text;
using KvCluster.Disk;
using KvCluster.Simulation.Cluster;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Sessions;
using Microsoft.Extensions.Logging.Abstractions;
using WriteRequest = KvCluster.Storage.Transactions.WriteRequest;

namespace KvCluster.Simulation.Engine;

/// <summary>
/// The real engine alone on a simulated disk, from one seed on one thread. Power is lost repeatedly, mostly in the middle of a call to the disk, and
/// one of two copies on the disk may be damaged meanwhile. After each start the store must hold everything answered, and be the state after a prefix
/// of the writes. Without replicas nobody restores what one disk has lost, so no loss is hidden. At the end a bit of the journal flips. A store that
/// has found the loss must find it again at its next start.
/// </summary>
/// <remarks>
/// In the other kind of run calls to the disk also fail for want of space, some of them although all that they do has happened, or a part. Such a disk ends no
/// store, and what was refused is not there.
/// </remarks>
internal sealed class StoreRun : ISimulation
{
    private const string Directory = "/data/shard";
    private const int Lives = 10;
    private const int Keys = 40;
    private const int ValueBytesMax = 3_000;
    private const long LifeUs = 300_000;
    private const int CrashWithinCalls = 400;
    private const int CheckpointInOneOf = 15;
    private const int DamageInOneOf = 3;
    private const int FlipsMax = 40;
    private const int BesideInOneOf = 4;
    private const int StepsBeside = 6;
    private const int CrashBesideInOneOf = 20;

    // A checkpoint makes some writes, the last one of its meta page. Power is lost in that write or in the sync after it.
    private const int CrashInCheckpointInOneOf = 10;
    private const string LastKey = "last";

    // Room is looked for once a second, and in pauses the store becomes quiescent and gives space back.
    private const long LifeWithoutRoomUs = 4_000_000;
    private const long LookUs = 1_100_000;
    private const long PauseUs = 700_000;
    private const int PauseInOneOf = 30;
    private const int NoRoomInOneOf = 60;

    private readonly bool _failsButArrives;
    private readonly HashSet<int> _refused = [];
    private readonly Random _random;
    private readonly InjectedBug _bug;
    private const int RangeInOneOf = 15;

    private readonly List<(string Key, string? Value, string? RangeEnd)> _writes = [];
    private readonly List<(Task<WriteResult> Answer, Action<WriteResult> Done, Action Refused)> _open = [];
    private VirtualExecutor[] _executors = [];
    private SimulatedDisk _disk = new();
    private StandaloneStore? _store;
    private int _answered;
    private long _lives;
    private long _acknowledged;

    public StoreRun(int seed, InjectedBug bug, bool detailed, bool failsButArrives = false)
    {
        (_random, _bug, _failsButArrives) = (new Random(seed), bug, failsButArrives);
        Transcript = new Transcript(detailed);
        Time = new VirtualTime(Transcript.Step);
    }

    public static IReadOnlyList<Scenario> All { get; } =
    [
        new Scenario("store-power-lost", "F15 F16", 0, static (seed, bug, detailed) => new StoreRun(seed, bug, detailed)),
        new Scenario("store-failed-but-arrived", "F15 F18 F47", 0, static (seed, bug, detailed) => new StoreRun(seed, bug, detailed, failsButArrives: true)),
    ];

    public Transcript Transcript { get; }

    public VirtualTime Time { get; }

    public long NowUs => Time.NowUs;

    public Activity Activity => default(Activity) with { Writes = _acknowledged };

    public Tally Tally { get; } = new();

    public string Describe() => $"life {_lives}, {_writes.Count} writes, of which {_answered} were answered";

    public void Run()
    {
        try
        {
            for (_lives = 1; _lives <= Lives; _lives++)
            {
                Live();
                LosePower((UnsyncedWrites)_random.Next(4));
                if (_random.Next(DamageInOneOf) == 0)
                    DamageMeta();
            }

            // The whole journal is durable now.
            Live();
            LosePower(UnsyncedWrites.Kept);
            LoseRecords();
        }
        finally
        {
            End();
            _disk.Dispose();
        }
    }

    private void Live()
    {
        _disk.CrashAtCall = _disk.Calls + _random.Next(1, Rarely(CrashWithinCalls));
        if (_failsButArrives)
            _disk.Fault = call =>
                !call.Changes || _random.Next(NoRoomInOneOf) != 0 ? DiskFault.None : _random.Next(3) == 0 ? DiskFault.NoRoom : DiskFault.NoRoomAfterwards;
        StandaloneStore store;
        try
        {
            _store = store = StandaloneStore.Open(Prepare(_disk), Directory);
        }
        catch (SimulatedCrashException)
        {
            return;
        }
        catch (StorageIoException full) when (_failsButArrives && full.IsDiskFull)
        {
            // Its owner opens it again after a while.
            return;
        }
        catch (Exception refused) when (refused is RecoveryRefusedException or CorruptStoreException)
        {
            throw new Violation(Rule.GoesOn, $"life {_lives}: {refused.Message}");
        }

        var endUs = Time.NowUs + (_failsButArrives ? LifeWithoutRoomUs : LifeUs);
        Begin();
        Time.RunUntil(endUs, () => _disk.IsOff || store.Failure.IsCompleted);
        Violation.Unless(
            _disk.IsOff || !store.Failure.IsCompleted,
            Rule.GoesOn, $"life {_lives}: the store ends by itself: {(store.Failure.IsCompleted ? store.Failure.Result.Message : "")}");

        // Answered when the store leads and has applied its whole journal.
        void Begin()
        {
            if (_store != store)
                return;
            Write("life", $"{_lives}", null, _ =>
            {
                Check();
                Time.After(1, Next);
            }, () => Time.After(LookUs, Begin));
        }

        void Next()
        {
            if (_store != store)
                return;
            if (_random.Next(Rarely(CheckpointInOneOf)) == 0)
                _ = store.Store.Checkpoints.RequestAsync();
            var index = _writes.Count;
            var (first, end) = (_random.Next(Keys), _random.Next(RangeInOneOf) == 0);
            var rangeEnd = end ? $"key{_random.Next(first, Keys):D3}" : null;
            var (key, value) = ($"key{first:D3}", end || _random.Next(8) == 0 ? null : $"{index} {new string('x', _random.Next(ValueBytesMax))}");
            _writes.Add((key, value, rangeEnd));
            Write(key, value, rangeEnd, _ =>
            {
                _answered = Math.Max(_answered, index + 1);
                _acknowledged++;
            }, () => _refused.Add(index), index);
            Time.After(!_failsButArrives ? 1 + _random.NextInt64(1_500) : _random.Next(PauseInOneOf) == 0 ? PauseUs : 1 + _random.NextInt64(15_000), Next);
        }
    }

    // A life has to be long enough that room is looked for and the store becomes quiescent.
    private int Rarely(int oneOf) => _failsButArrives ? 4 * oneOf : oneOf;

    private StoreContext Prepare(SimulatedDisk disk)
    {
        var options = new StoreOptions
        {
            SegmentBytesMin = 16 << 10,
            SegmentBytesMax = _failsButArrives ? 64 << 10 : 16 << 10,
            CheckpointQuiescentTime = TimeSpan.FromMicroseconds(_failsButArrives ? PauseUs / 3 : 5_000_000),
            JournalWrites = _random.Next(4) == 0 ? 4 : 2,
            RetainedJournalBytes = 0,
            ReserveBytes = 64 << 10,
            Pages = new PageStoreOptions { MapBytes = 16 << 20, StepPages = 4 },
        };
        var writer = new VirtualExecutor(Time, _random, static () => 20, Guarded);
        VirtualExecutor[] lanes = [.. Enumerable.Range(0, options.JournalWrites).Select(_ => new VirtualExecutor(Time, _random, static () => 1_000, Guarded))];
        var checkpoints = new VirtualExecutor(Time, _random, static () => 500, Guarded);
        var completions = new VirtualExecutor(Time, _random, static () => 20, Guarded);
        _executors = [writer, .. lanes, checkpoints, completions];
        disk.DuringWrite = path =>
        {
            if (path.EndsWith("/data", StringComparison.Ordinal) && _random.Next(Rarely(CrashInCheckpointInOneOf)) == 0)
                disk.CrashAtCall = disk.Calls + _random.Next(1, 3);
            else
                GoOnBeside(disk, writer, lanes, completions);
        };
        if (!disk.DirectoryExists("/data"))
        {
            disk.CreateDirectory("/data");
            disk.SyncDirectory("/");
        }

        return new StoreContext(FaultyFiles.Of(disk, _bug), writer, lanes, checkpoints, Time, NullLogger.Instance, options, completions);
    }

    // While one lane writes, all others continue, so a later write may be durable first, and answered if it is reported. Then power may be lost in
    // the middle of the first write.
    private void GoOnBeside(SimulatedDisk disk, VirtualExecutor writer, VirtualExecutor[] lanes, VirtualExecutor completions)
    {
        if (!lanes.Any(static lane => lane.IsRunning) || _random.Next(BesideInOneOf) != 0)
            return;
        for (var step = 0; step < StepsBeside; step++)
        {
            writer.RunOneBeside();
            completions.RunOneBeside();
            foreach (var lane in lanes)
                lane.RunOneBeside();
        }

        Look();
        if (_random.Next(CrashBesideInOneOf) == 0)
            disk.CrashAtCall = disk.Calls + 1;
    }

    private void Write(string key, string? value, string? rangeEnd, Action<WriteResult> done, Action refused, int? index = null)
    {
        var request = WriteRequest.Rent();
        if (rangeEnd is not null)
            request.DeleteRange(Bytes(key), Bytes(rangeEnd));
        else if (value is null)
            request.Delete(Bytes(key));
        else
            request.Put(Bytes(key), Bytes(value));
        if (index is not null)
            request.Put(Bytes(LastKey), Bytes($"{index}"));
        if (_store!.TryWrite(request) is { } answer)
            _open.Add((answer.AsTask(), done, refused));
    }

    // The state must be that after a prefix of the writes, with at least those that were answered. The other writes were never answered.
    private void Check()
    {
        using var snapshot = _store!.OpenSnapshot();
        var found = new SortedDictionary<string, string>(StringComparer.Ordinal);
        using var cursor = snapshot.Cursor(TreeId.Kv);
        while (cursor.MoveNext())
            found.Add(Encoding.UTF8.GetString(cursor.Key), Encoding.UTF8.GetString(KvValue.Read(cursor.Value, out var _)));
        found.Remove("life");
        var count = found.TryGetValue(LastKey, out var last) ? int.Parse(last) + 1 : 0;
        Violation.Unless(count >= _answered, Rule.CommittedStays, $"life {_lives}: {_answered} writes were answered, but {count} are in the store");
        _writes.RemoveRange(count, _writes.Count - count);
        _refused.RemoveWhere(index => index >= count);
        var expected = new SortedDictionary<string, string>(StringComparer.Ordinal);
        if (count > 0)
            expected[LastKey] = $"{count - 1}";
        for (var index = 0; index < count; index++)
        {
            var (key, value, rangeEnd) = _writes[index];
            if (_refused.Contains(index))
                continue;
            if (rangeEnd is not null)
            {
                foreach (var gone in expected.Keys.Where(other => string.CompareOrdinal(other, key) >= 0
                    && string.CompareOrdinal(other, rangeEnd) < 0).ToArray())
                    expected.Remove(gone);
            }
            else if (value is null)
                expected.Remove(key);
            else
                expected[key] = value;
        }

        Violation.Unless(found.SequenceEqual(expected), Rule.CommittedStays, $"life {_lives}: the tree is not the state after {count} writes");
    }

    private void Guarded(Action item)
    {
        try
        {
            item();
        }
        catch (SimulatedCrashException)
        {
            // The caller that advances time sees it.
        }

        Look();
    }

    private void Look()
    {
        foreach (var write in _open.ToArray())
        {
            if (!write.Answer.IsCompleted)
                continue;
            _open.Remove(write);
            if (write.Answer is { IsCompletedSuccessfully: true, Result: { Outcome: WriteOutcome.Applied } result })
                write.Done(result);
            else if (write.Answer is { IsCompletedSuccessfully: true, Result.Outcome: WriteOutcome.DiskFull or WriteOutcome.NoRoomYet })
                write.Refused();
        }
    }

    private void LosePower(UnsyncedWrites unsynced)
    {
        _disk.Fault = null;
        Transcript.Line(Time.NowUs, $"power is lost{(_disk.IsOff ? " in the middle of a call" : "")}: {unsynced}");
        End();
        _disk.Restart(unsynced, _random.Next());
    }

    private void End()
    {
        foreach (var executor in _executors)
            executor.Kill();
        _executors = [];
        _open.Clear();
        _store?.Dispose();
        _store = null;
    }

    // One sound meta page is enough.
    private void DamageMeta()
    {
        var layout = new StoreLayout(Directory);
        if (!_disk.DirectoryExists(Directory) || layout.States(_disk) is not [.., var state])
            return;
        var path = StoreLayout.Data(layout.State(state));
        var pages = _disk.ReadAll(path);
        if (MetaPage.TryDecode(pages.AsSpan(0, Page.Bytes), path) is null || MetaPage.TryDecode(pages.AsSpan(Page.Bytes, Page.Bytes), path) is null)
            return;
        var offset = _random.Next(2 * Page.Bytes);
        Transcript.Line(Time.NowUs, $"a bit of a meta page flips, at {offset}");
        _disk.FlipBit(path, offset);
    }

    // When a bit of the journal flips, recovery may detect the loss of a durable record and report it. Then it must report it the next time as well,
    // although a new segment follows.
    private void LoseRecords()
    {
        var whole = _disk;
        for (var flip = 0; flip < FlipsMax; flip++)
        {
            using var disk = whole.Copy();
            var layout = new StoreLayout(Directory);
            var journal = StoreLayout.Journal(layout.State(layout.States(disk)[^1]));
            var segments = disk.List(journal);
            var path = $"{journal}/{segments[_random.Next(segments.Count)]}";
            var bytes = disk.ReadAll(path).Length;
            if (bytes == 0)
                continue;
            disk.FlipBit(path, _random.Next(bytes));
            if (Opens(disk, mayRecover: false) || !Opens(disk, mayRecover: true))
                continue;
            Transcript.Line(Time.NowUs, $"a bit of {path} flips, and a record is lost");
            disk.Restart(UnsyncedWrites.Kept);
            Violation.Unless(!Opens(disk, mayRecover: false), Rule.CommittedStays, $"a bit of {path} has flipped and a record is lost, but the next start does "
                + $"not report it");
            return;
        }
    }

    private bool Opens(SimulatedDisk disk, bool mayRecover)
    {
        try
        {
            // As a process that ends at once.
            ReplicaStore.Open(Prepare(disk), Directory, mayRecover).Dispose();
            return true;
        }
        catch (RecoveryRefusedException)
        {
            return false;
        }
        finally
        {
            End();
        }
    }

    private static byte[] Bytes(string text) => Encoding.UTF8.GetBytes(text);
}
