using System.Globalization;
using System.Text;
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

/// <summary>
/// A store with threads of its own on a real disk, and what it must have. Some requests are of the whole language, over a few keys and sets that <see
/// cref="RequestModel"/> has;
/// others move megabytes: values of up to 100 KB under many keys, ranges of them deleted, also all of them as a dropped tree is; keys that expire, and keys of
/// sessions that end.
/// Snapshots are held meanwhile, checkpoints and backups made, backups restored, the store closed or abandoned and opened again with another budget and other
/// options.
/// </summary>
internal sealed class DifferentialRun(string directory, string beside, Random random, bool fillsDisk) : IAsyncDisposable
{
    private const int Window = 64;
    private const int SnapshotsMax = 3;
    private const int Sessions = 4;
    private const int ShortLifeMs = 2_000;

    /// <summary>Keys with large values: some 20 MB, or more than the disk has room for.</summary>
    private readonly int _keys = fillsDisk ? 60_000 : 3_000;

    private readonly string _folder = Path.Combine(directory, "shard");
    private readonly RequestModel _model = new();
    private readonly SortedDictionary<string, (Etag Etag, int Seed, int Length)> _large = new(StringComparer.Ordinal);
    private readonly Dictionary<int, SortedSet<string>> _owned = [];
    private readonly Dictionary<int, ulong> _opened = [];

    /// <summary>The keys of sessions whose end was refused by a full disk.</summary>
    private readonly List<SortedSet<string>> _notEnded = [];

    private readonly Queue<(Task<WriteResult> Answer, Action<WriteResult> Settle, Action? Refused)> _waiting = new();
    private readonly List<(ReadSnapshot Snapshot, string Model, KeyValuePair<string, (Etag Etag, int Seed, int Length)>[] Large)> _snapshots = [];
    private StandaloneStore? _store;
    private ulong _sessionsOpened;
    private long _operations;
    private int _requests;
    private int _refused;
    private int _reopened;
    private int _backups;
    private int _checked;
    private bool _isFull;
    private bool _hasShortLives;

    /// <summary>What was done.</summary>
    public string Summary => string.Create(CultureInfo.InvariantCulture,
        $"{_operations:N0} operations in {_requests:N0} requests, {_refused:N0} refused by a full disk; opened {_reopened:N0} times, "
        + $"{_backups:N0} backups restored, {_checked:N0} states compared");

    private StandaloneStore Store => _store!;

    public async Task RunAsync(int operations)
    {
        Open();
        var began = TimeProvider.System.GetTimestamp();
        while (_operations < operations && Seeds.HasTime(began))
        {
            Submit();
            await SettleAsync(Window);
            await DoBesideAsync();
        }
        await SettleAsync(0);
        CloseSnapshots(compare: true);
        await MakeRoomAsync();
        await AwaitExpiriesAsync();
        await ReopenAsync();
    }

    public async ValueTask DisposeAsync()
    {
        CloseSnapshots(compare: false);
        if (_store is null)
            return;
        await _store.Store.CloseAsync();
        _store.Dispose();
    }

    private void Open()
    {
        var options = new StoreOptions
        {
            RangeLeavesMax = random.Next(2) == 0 ? 8 : 1_024,
            RangeLeavesUnreadMax = random.Next(2) == 0 ? 600 : 128 << 10,
            RetainedJournalBytes = 0,
            CompressRecords = random.Next(2) == 0,
            JournalWrites = random.Next(2) == 0 ? 2 : 4,
            FillSegments = random.Next(2) == 0,
            CheckpointJournalBytes = (2L << 20) << random.Next(5),
            CheckpointScratchBytes = (4L << 20) << random.Next(5),
            Pages = new PageStoreOptions { CompressesValues = random.Next(2) == 0 },
        };
        _store = StandaloneStore.Open(LocalDisk.Instance, _folder, options, TimeProvider.System, NullLogger.Instance, (32L << 20) << random.Next(5));
    }

    private void Submit()
    {
        var choice = random.Next(100);
        // A full disk is emptied until puts are accepted again.
        if (_isFull && choice < 70)
            choice = random.Next(3) == 0 ? 92 : 95;
        switch (choice)
        {
            case < 40:
                SubmitAnything();
                break;
            case < 88:
                SubmitLarge(isDelete: false);
                break;
            case < 93:
                SubmitLarge(isDelete: true);
                break;
            case < 96:
                SubmitRange();
                break;
            case < 98:
                SubmitOwned();
                break;
            default:
                SubmitShortLives();
                break;
        }
    }

    private void SubmitAnything()
    {
        ModelRequest? filled = null;
        Submit(request => ModelRequests.Fill(filled = new ModelRequest(request, _model.Known), random), result => _model.Settle(filled!, result));
    }

    private void SubmitLarge(bool isDelete)
    {
        var changes = new List<(string Key, int Seed, int Length)>();
        for (var count = random.Next(1, 12); count > 0; count--)
        {
            var length = random.Next(random.Next(40) switch { 0 => 100_000, < 10 => 12_000, _ => 1_500 });
            changes.Add((LargeKey(random.Next(_keys)), random.Next(), length));
        }
        Submit(
            request =>
            {
                foreach (var (key, seed, length) in changes)
                {
                    if (isDelete)
                        request.Delete(StoreBench.Text(key));
                    else
                        request.Put(StoreBench.Text(key), Value(seed, length));
                }
            },
            result =>
            {
                Assert.Equal(WriteOutcome.Applied, result.Outcome);
                var etag = result.Etag with { Change = result.Etag.Change - (ulong)changes.Count };
                var deleted = 0;
                foreach (var (key, seed, length) in changes)
                {
                    etag++;
                    if (!isDelete)
                        _large[key] = (etag, seed, length);
                    else
                        deleted += _large.Remove(key) ? 1 : 0;
                }
                Assert.Equal(deleted, result.Deleted);
            });
    }

    private void SubmitRange()
    {
        var from = random.Next(_keys);
        var end = random.Next(200) == 0 ? _keys : Math.Min(_keys, from + random.Next(1, _keys / 20));
        from = end == _keys && random.Next(2) == 0 ? 0 : from;
        SubmitRange(LargeKey(from), LargeKey(end));
    }

    private void SubmitRange(string from, string end) => Submit(
        request => request.DeleteRange(StoreBench.Text(from), StoreBench.Text(end)),
        result =>
        {
            Assert.Equal(WriteOutcome.Applied, result.Outcome);
            var range = _large.Keys.SkipWhile(key => string.CompareOrdinal(key, from) < 0).TakeWhile(key => string.CompareOrdinal(key, end) < 0).ToArray();
            if (result.IsPartial)
                Assert.InRange(result.Deleted, 1, range.Length);
            else
                Assert.Equal(range.Length, result.Deleted);
            foreach (var key in range[..result.Deleted])
                _large.Remove(key);
        });

    /// <summary>A session with keys that go with it, of which some are deleted as a range before.</summary>
    private void SubmitOwned()
    {
        var session = random.Next(Sessions);
        if (!_owned.TryGetValue(session, out var keys))
        {
            _owned[session] = [];
            // Known from the submission on, because requests behind it name it.
            _opened[session] = ++_sessionsOpened;
            Submit(request => request.OpenSession(_opened[session], ReplicaBench.Owner, 86_400_000), result =>
            {
                if (!IsRefused(result))
                    Assert.Equal(WriteOutcome.Applied, result.Outcome);
            });
            return;
        }
        // Under the id, because the keys of a session whose end was refused stay.
        var id = _opened[session];
        var prefix = $"o/{id}/";
        switch (random.Next(6))
        {
            case 0:
                _owned.Remove(session);
                (WriteOutcome, int)[] ends() => [(WriteOutcome.Applied, keys.Count), (WriteOutcome.SessionExpired, 0)];
                Submit(request => request.EndSession(id), result => Assert.Contains((result.Outcome, result.Deleted), ends()), () => _notEnded.Add(keys));
                break;
            case 1:
                Submit(request => request.DeleteRange(StoreBench.Text(prefix), StoreBench.Text($"o/{id}0")), result =>
                {
                    Assert.Equal((WriteOutcome.Applied, result.IsPartial ? result.Deleted : keys.Count), (result.Outcome, result.Deleted));
                    foreach (var key in keys.Take(result.Deleted).ToArray())
                        keys.Remove(key);
                });
                break;
            default:
                var added = Enumerable.Range(0, random.Next(1, 40)).Select(_ => $"{prefix}{random.Next(300):d4}").ToArray();
                Submit(
                    request =>
                    {
                        foreach (var key in added)
                            request.Put(StoreBench.Text(key), "v"u8, new PutTerms(0, id, IsNumbered: false));
                    },
                    result =>
                    {
                        if (result.Outcome == WriteOutcome.Applied)
                            keys.UnionWith(added);
                        else
                            Assert.True(result.Outcome == WriteOutcome.NoOwner || result.Outcome == WriteOutcome.TooManyOwned, $"{result.Outcome}");
                    });
                break;
        }
    }

    private void SubmitShortLives()
    {
        _hasShortLives = true;
        Submit(
            request =>
            {
                for (var count = random.Next(1, 200); count > 0; count--)
                {
                    var terms = new PutTerms((ulong)random.Next(1, ShortLifeMs), 0, IsNumbered: false);
                    request.Put(StoreBench.Text($"t/{random.Next(100_000):d6}"), new byte[random.Next(500)], terms);
                }
            },
            static result => Assert.Equal(WriteOutcome.Applied, result.Outcome));
    }

    private void Submit(Action<WriteRequest> fill, Action<WriteResult> settle, Action? refused = null)
    {
        var request = WriteRequest.Rent();
        fill(request);
        _requests++;
        _operations += Math.Max(1, request.OperationCount);
        var answer = request.Completion;
        // With a small budget less may wait than the window has.
        for (var spinner = new SpinWait(); !Store.Store.Requests.TrySubmit(request);)
            spinner.SpinOnce();
        _waiting.Enqueue((answer.AsTask(), settle, refused));
    }

    private async Task SettleAsync(int left)
    {
        while (_waiting.Count > left)
        {
            var (answer, settle, refused) = _waiting.Dequeue();
            var result = await answer;
            if (IsRefused(result))
            {
                (_refused, _isFull) = (_refused + 1, true);
                Assert.True(fillsDisk, "The disk is full, although there was room.");
                refused?.Invoke();
                continue;
            }
            _isFull &= result.Outcome != WriteOutcome.Applied || random.Next(400) > 0;
            settle(result);
        }
    }

    private static bool IsRefused(in WriteResult result) => result.Outcome is WriteOutcome.DiskFull or WriteOutcome.NoRoomYet;

    private async Task DoBesideAsync()
    {
        switch (random.Next(4_000))
        {
            case < 8:
                _ = Store.Store.Checkpoints.RequestAsync();
                break;
            case < 14:
                await SettleAsync(0);
                OpenSnapshot();
                break;
            case < 20 when _snapshots.Count > 0:
                CloseSnapshot(random.Next(_snapshots.Count), compare: true);
                break;
            case 20:
                await ReopenAsync();
                break;
            case 21 when !fillsDisk || random.Next(8) == 0:
                await RestoreAsync();
                break;
            case 22 when random.Next(4) == 0:
                await DropLargeAsync();
                break;
            default:
                break;
        }
    }

    private void OpenSnapshot()
    {
        if (_snapshots.Count == SnapshotsMax)
            CloseSnapshot(0, compare: true);
        _snapshots.Add((Store.OpenSnapshot(), _model.Expected, [.. _large]));
    }

    private void CloseSnapshot(int index, bool compare)
    {
        var (snapshot, model, large) = _snapshots[index];
        _snapshots.RemoveAt(index);
        using (snapshot)
        {
            if (compare)
                Compare(snapshot, model, large);
        }
    }

    private void CloseSnapshots(bool compare)
    {
        while (_snapshots.Count > 0)
            CloseSnapshot(0, compare);
    }

    private void Compare(in ReadSnapshot snapshot, string model, IReadOnlyCollection<KeyValuePair<string, (Etag Etag, int Seed, int Length)>> large)
    {
        _checked++;
        Assert.Equal(model, RequestModel.Text(snapshot, static key => key[0] is 'b' or 'o' or 't'));
        using var cursor = snapshot.Cursor(TreeId.Kv, "b/"u8, "b0"u8);
        foreach (var (key, (etag, seed, length)) in large)
        {
            Assert.True(cursor.MoveNext(), $"{key} is missing, and all behind it.");
            Assert.Equal(key, Encoding.UTF8.GetString(cursor.Key));
            var value = KvValue.Read(cursor.Value, out var found);
            Assert.Equal((etag, length), (found, value.Length));
            Assert.True(value.SequenceEqual(Value(seed, length)), $"{key} has another value.");
        }
        Assert.False(cursor.MoveNext(), "The store has a key that was deleted.");
    }

    /// <summary>All keys of a prefix go, as those of a dropped tree do.</summary>
    private async Task DropLargeAsync()
    {
        await SettleAsync(0);
        while (_large.Count > 0)
        {
            SubmitRange("b/", "b0");
            await SettleAsync(0);
        }
    }

    /// <summary>Closes the store, or abandons it as the end of a process does, and opens it with other options.</summary>
    private async Task ReopenAsync()
    {
        await SettleAsync(0);
        CloseSnapshots(compare: true);
        if (random.Next(2) == 0)
            await Store.Store.CloseAsync();
        Store.Dispose();
        _reopened++;
        Open();
        // Answered when it leads, and everything from before is visible.
        Submit(static request => request.AddCondition("k"u8, ConditionKind.Absent), static _ => { });
        await SettleAsync(0);
        using var snapshot = Store.OpenSnapshot();
        Compare(snapshot, _model.Expected, _large);
        Assert.Equal(_owned.Values.Concat(_notEnded).Sum(static keys => keys.Count), (int)snapshot.CountRange(TreeId.Kv, "o/"u8, "o0"u8));
    }

    private async Task RestoreAsync()
    {
        await SettleAsync(0);
        var (backup, folder) = (Path.Combine(beside, "backup"), Path.Combine(beside, "restored"));
        await using (var stream = new FileStream(backup, FileMode.Create))
        {
            try
            {
                await StoreBackup.WriteAsync(Store, stream, CancellationToken.None);
            }
            catch (StorageIoException) when (fillsDisk)
            {
                // No room for the checkpoint.
                return;
            }
            stream.Position = 0;
            await StoreBackup.ReadAsync(stream, folder, new KvStoreOptions(), CancellationToken.None);
        }
        using (var restored = StandaloneStore.Open(LocalDisk.Instance, folder, new StoreOptions(), TimeProvider.System, NullLogger.Instance))
        {
            using (var snapshot = restored.OpenSnapshot())
                Compare(snapshot, _model.Expected, _large);
            await restored.Store.CloseAsync();
        }
        Directory.Delete(folder, recursive: true);
        _backups++;
    }

    /// <summary>However full the disk was, a store that has deleted most of what it had takes puts again.</summary>
    private async Task MakeRoomAsync()
    {
        if (!fillsDisk)
            return;
        for (var attempt = 0; _isFull || attempt == 0; attempt++)
        {
            Assert.True(attempt < 1_800, "The disk stays full although everything was deleted.");
            _isFull = false;
            SubmitRange("b/", "b0");
            SubmitLarge(isDelete: false);
            await SettleAsync(0);
            if (_isFull)
                await Task.Delay(100);
        }
    }

    private async Task AwaitExpiriesAsync()
    {
        if (_hasShortLives)
            await Eventually.TrueAsync(() => CountShortLives() == 0, "keys expire");
    }

    private ulong CountShortLives()
    {
        using var snapshot = Store.OpenSnapshot();
        return snapshot.CountRange(TreeId.Kv, "t/"u8, "t0"u8);
    }

    private static string LargeKey(int number) => string.Create(CultureInfo.InvariantCulture, $"b/{number:d6}");

    /// <summary>Half of the values can be compressed.</summary>
    private static byte[] Value(int seed, int length)
    {
        var value = new byte[length];
        if (seed % 2 == 0)
            new Random(seed).NextBytes(value);
        else
            value.AsSpan().Fill((byte)seed);
        return value;
    }
}
