using KvCluster.Disk;
using KvCluster.Processes;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using Microsoft.Extensions.Logging.Abstractions;
using Xunit.Abstractions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// A store on a real ext4 that others fill, and give back in steps of 1 MiB. It stayed full for ever: a failed <c>fallocate</c> kept what it had found, and the
/// journal took 64 MiB for its next segment before the checkpoint, which alone frees anything, got what it needed. Opening the store again did not help.
/// </summary>
[Trait("Turn", "4")]
public sealed class SmallVolumeTests(ITestOutputHelper output)
{
    private const int VolumeMebibytes = 160;
    private const int Rounds = 4;
    private const int Keys = 12_000;
    private const int KeysAtOnce = 300;
    private const long Mebibyte = 1 << 20;

    /// <summary>The smallest segment, the reserve, and what the file system itself needs for them.</summary>
    private const long JournalBytes = 3 * Mebibyte;

    [LoopMountFact]
    public Task FilledVolume_GivenBackInSteps_ServesAgainAsSoonAsThereIsRoom() => FillAndGiveBackAsync(reopens: false);

    [LoopMountFact]
    public Task FilledVolume_GivenBackInStepsBetweenOpens_ServesAgainAsSoonAsThereIsRoom() => FillAndGiveBackAsync(reopens: true);

    private async Task FillAndGiveBackAsync(bool reopens)
    {
        var random = Seeds.Next(output);
        await using var disk = await SmallDisk.CreateAsync(VolumeMebibytes, 2 * VolumeMebibytes);
        using var store = new OpenStore(disk.Data, random);
        for (var first = 0; first < Keys; first += KeysAtOnce)
            Assert.Equal(WriteOutcome.Applied, store.Put(Enumerable.Range(first, KeysAtOnce)));
        for (var round = 0; round < Rounds; round++)
        {
            // Many pages change, of which no checkpoint knows when the others come.
            for (var puts = random.Next(5, 40); puts > 0 && store.Put(Some()) == WriteOutcome.Applied; puts--)
            {
            }
            using var others = new Others(disk.Data + ".others");
            others.TakeAll();
            for (var attempts = 0; store.Put(Some()) == WriteOutcome.Applied; attempts++)
            {
                Assert.True(attempts < 1_000, $"Round {round}: the full disk refuses nothing.");
                others.TakeAll();
            }
            for (var step = 0; ; step++)
            {
                if (reopens && step % 3 == 2)
                    store.Reopen();
                store.Pass(TimeSpan.FromSeconds(4));
                var needed = Math.Max(0, store.Store.Pages.ChangedFileBytes - store.Store.Pages.ReusableBytes) + JournalBytes;
                var available = LocalDisk.Instance.AvailableBytes(disk.Data);
                var outcome = store.Put(Some());
                if (outcome == WriteOutcome.Applied)
                {
                    output.WriteLine($"Round {round}: served after {step} steps, {needed >> 10} KiB of {available >> 10} were needed.");
                    break;
                }
                Assert.True(outcome is WriteOutcome.DiskFull or WriteOutcome.NoRoomYet, $"Round {round}, step {step}: {outcome}.");
                Assert.True(
                    available < needed,
                    $"Round {round}, step {step}: {available} bytes are free, of which {needed} are needed, but a put gets {outcome}; "
                    + $"journal {store.Store.Statistics.JournalBytes}, checkpoint {store.Store.Checkpoints.IsDiskFull}.");
                others.GiveBack(Mebibyte);
            }
        }
        store.Pass(TimeSpan.FromSeconds(4));
        store.Check();

        IEnumerable<int> Some() => Enumerable.Range(0, KeysAtOnce).Select(_ => random.Next(Keys));
    }

    /// <summary>What others have on the volume.</summary>
    private sealed class Others(string path) : IDisposable
    {
        private readonly IStorageFile _file = LocalDisk.Instance.Open(path, new StorageFileOptions(StorageFileMode.CreateNew));

        /// <summary>Takes what is free, down to a block.</summary>
        public void TakeAll()
        {
            for (var bytes = 1L << 30; bytes >= 4096;)
            {
                bytes = Math.Min(bytes, LocalDisk.Instance.AvailableBytes(Path.GetDirectoryName(path)!) / 4096 * 4096);
                if (bytes == 0)
                    return;
                try
                {
                    _file.Resize(_file.Length + bytes);
                }
                catch (StorageIoException failure) when (failure.IsDiskFull)
                {
                    bytes = bytes / 2 / 4096 * 4096;
                }
            }
        }

        public void GiveBack(long bytes)
        {
            Assert.True(_file.Length > bytes, "The others have given everything back.");
            _file.Resize(_file.Length - bytes);
        }

        public void Dispose()
        {
            _file.Dispose();
            LocalDisk.Instance.Delete(path);
        }
    }

    /// <summary>A store on the machine's disk, run on the test's thread and by the test's clock.</summary>
    private sealed class OpenStore : IDisposable
    {
        private readonly StepExecutor[] _executors = [.. Enumerable.Range(0, 5).Select(static _ => new StepExecutor())];
        private readonly ManualTime _time = new();
        private readonly string _directory;
        private readonly Random _random;
        private readonly StoreContext _context;
        private readonly byte[]?[] _expected = new byte[Keys][];
        private StandaloneStore _store;

        public OpenStore(string directory, Random random)
        {
            (_directory, _random) = (directory, random);
            _context = new StoreContext(
                LocalDisk.Instance, _executors[0], [_executors[1], _executors[2]], _executors[3],
                _time, NullLogger.Instance, new StoreOptions(), _executors[4]);
            _store = Open();
        }

        public ReplicaStore Store => _store.Store;

        public WriteOutcome Put(IEnumerable<int> keys)
        {
            var values = keys.Distinct().Select(key => (Key: key, Value: new byte[_random.Next(700, 1_300)])).ToList();
            var request = WriteRequest.Rent();
            foreach (var (key, value) in values)
            {
                _random.NextBytes(value);
                request.Put(KeyOf(key), value);
            }
            var answer = (_store.TryWrite(request) ?? throw new InvalidOperationException("The queue is full.")).AsTask();
            Run();
            // What was accepted before the disk was found full waits for space.
            for (var wait = 0; wait < 4 && !answer.IsCompleted; wait++)
                Pass(TimeSpan.FromSeconds(1));
            if (!answer.IsCompleted)
                return WriteOutcome.NoRoomYet;
            var outcome = StoreBench.Answer(answer).Outcome;
            foreach (var (key, value) in values)
                _expected[key] = outcome == WriteOutcome.Applied ? value : _expected[key];
            return outcome;
        }

        public void Pass(TimeSpan time)
        {
            for (var passed = TimeSpan.Zero; passed < time; passed += TimeSpan.FromMilliseconds(500))
            {
                _time.Advance(TimeSpan.FromMilliseconds(500));
                Run();
            }
        }

        public void Reopen()
        {
            Close();
            _store = Open();
        }

        /// <summary>It has what was answered.</summary>
        public void Check()
        {
            using var snapshot = _store.OpenSnapshot();
            var found = StoreBench.KeysOf(snapshot).Count;
            Assert.Equal(Keys, found);
            Store.Pages.Verify();
        }

        public void Dispose() => Close();

        private static byte[] KeyOf(int key) => StoreBench.Text($"key-{key:00000}");

        private StandaloneStore Open()
        {
            _store = StandaloneStore.Open(_context, _directory);
            Run();
            return _store;
        }

        private void Close()
        {
            foreach (var executor in _executors)
                executor.Clear();
            _store.Dispose();
        }

        private void Run()
        {
            while (_executors.Where(static executor => executor.Count > 0).ToArray() is { Length: > 0 } waiting)
                waiting[_random.Next(waiting.Length)].RunOne();
            Assert.Null(Store.Life.Failure);
        }
    }
}
