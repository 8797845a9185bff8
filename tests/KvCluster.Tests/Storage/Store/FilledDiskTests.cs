using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// A store that fills its disk with its own data recovers with deletes alone: they are served, checkpoints go through, space is given back, and puts work
/// again.
/// </summary>
[Trait("Turn", "2")]
public sealed class FilledDiskTests
{
    private static readonly StoreOptions Options = new()
    {
        SegmentBytesMin = 64 << 10,
        SegmentBytesMax = 1 << 20,
        RetainedJournalBytes = 4 << 20,
        CheckpointJournalBytes = 2 << 20,
        CheckpointScratchBytes = 4 << 20,
    };

    /// <summary>Stores of the first seeds were stuck once. A long run takes others, too.</summary>
    public static TheoryData<int, bool> Cases
    {
        get
        {
            var cases = new TheoryData<int, bool>();
            foreach (var seed in Seeds.IsLong ? Enumerable.Range(1, 8) : [1, 2, 7])
            {
                cases.Add(seed, true);
                cases.Add(seed, false);
            }
            return cases;
        }
    }

    [Theory]
    [MemberData(nameof(Cases))]
    public void Deletes_OfHalfOnAFullDisk_MakeRoomForPuts(int seed, bool inOrder)
    {
        using var disk = new SimulatedDisk { CapacityBytes = 24 << 20 };
        using var bench = new StoreBench(disk, seed, Options);
        bench.Open();
        var random = new Random(seed);
        var keys = new List<string>();
        // A checkpoint may make room for some more.
        for (var refused = 0; refused < 30;)
        {
            var key = $"{random.NextInt64():x16}";
            if (Put(key) == WriteOutcome.Applied)
            {
                keys.Add(key);
                continue;
            }
            refused++;
            Wait();
        }
        Assert.True(disk.CapacityBytes - disk.UsedBytes < 6 << 20, $"After {keys.Count} puts {disk.UsedBytes} bytes are used.");

        if (inOrder)
            keys.Sort(StringComparer.Ordinal);
        var deleted = 0;
        for (var refused = 0; deleted < keys.Count / 2;)
        {
            Assert.True(refused < 300, $"Only {deleted} of {keys.Count} keys could be deleted.");
            if (Write(request => request.Delete(StoreBench.Text(keys[deleted]))) == WriteOutcome.Applied)
                deleted++;
            else
            {
                refused++;
                Wait();
            }
        }
        for (var wait = 0; wait < 20; wait++)
            Wait();
        Assert.False(
            bench.Store.Space.IsDiskFull,
            $"{disk.UsedBytes} bytes are used, of the file's {bench.Store.Pages.FileBytes} {bench.Store.Pages.ReusableBytes} are reusable; "
            + $"checkpoints {bench.Store.Checkpoints.IsDiskFull}.");
        bench.Checkpoint();
        Assert.Equal(WriteOutcome.Applied, Put("again"));
        Assert.Equal(keys.Count - deleted + 1, bench.ReadAllKeys().Count);

        WriteOutcome Put(string key) => Write(request => request.Put(StoreBench.Text(key), new byte[1_000]));

        WriteOutcome Write(Action<WriteRequest> fill)
        {
            var answer = bench.Submit(fill);
            bench.RunUntilIdle();
            // What was accepted before the disk was found full waits for space.
            for (var wait = 0; wait < 20 && !answer.IsCompleted; wait++)
                Wait();
            return StoreBench.Answer(answer).Outcome;
        }

        void Wait()
        {
            bench.Time.Advance(TimeSpan.FromSeconds(1));
            bench.RunUntilIdle();
        }
    }
}
