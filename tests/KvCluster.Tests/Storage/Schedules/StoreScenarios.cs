using KvCluster.Disk;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using KvCluster.Tests.Storage.Store;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Storage.Schedules;

/// <summary>A whole store, each of whose executors is an actor.</summary>
internal static class StoreScenarios
{
    private static readonly Lazy<SimulatedDisk> _base = new(MakeBase);

    /// <summary>Callers write and, once they are answered, read what they have written, while two journal writes are in flight.</summary>
    public static Action GroupCommit(Schedule schedule)
    {
        var disk = _base.Value.Copy();
        SteppedExecutor writer = new(), firstLane = new(), secondLane = new(), completions = new(), checkpoints = new();
        var store = Open(disk, writer, firstLane, secondLane, completions, checkpoints);
        SteppedExecutor[] all = [writer, firstLane, secondLane, completions, checkpoints];
        RunAll(all);
        var callers = 2;
        schedule.Add("caller", () => Write("a", "1", "2"));
        schedule.Add("other caller", () => Write("b", "3"));
        schedule.Add("writer", () => writer.RunUntil(IsOver));
        schedule.Add("first lane", () => firstLane.RunUntil(IsOver));
        schedule.Add("second lane", () => secondLane.RunUntil(IsOver));
        schedule.Add("completions", () => completions.RunUntil(IsOver));
        return () =>
        {
            RunAll(all);
            Assert.Null(store.Store.Life.Failure);
            StoreBench.VerifyAtEnd(store.Store, disk, isDamaged: false);
            store.Dispose();
            // Whoever was answered finds it after a power loss.
            disk.Restart(UnsyncedWrites.Dropped);
            using var again = Open(disk, writer, firstLane, secondLane, completions, checkpoints);
            RunAll(all);
            Assert.Equal(("2", "3"), (Read(again, "a"), Read(again, "b")));
            again.Dispose();
            disk.Dispose();
        };

        bool IsOver() => callers == 0;

        void Write(string key, params string[] values)
        {
            foreach (var value in values)
            {
                var request = WriteRequest.Rent();
                request.Put(StoreBench.Text(key), StoreBench.Text(value));
                var answer = store.TryWrite(request) ?? throw new InvalidOperationException("The queue is full.");
                Schedule.Until(() => answer.IsCompleted);
                var result = answer.GetAwaiter().GetResult();
                Assert.Equal(WriteOutcome.Applied, result.Outcome);
                Assert.Equal(value, Read(store, key));
            }
            callers--;
        }
    }

    private static SimulatedDisk MakeBase()
    {
        var disk = new SimulatedDisk();
        var all = new SteppedExecutor();
        using var store = Open(disk, all, all, all, all, all);
        RunAll(all);
        return disk;
    }

    private static StandaloneStore Open(
        SimulatedDisk disk, SteppedExecutor writer, SteppedExecutor firstLane, SteppedExecutor secondLane, SteppedExecutor completions,
        SteppedExecutor checkpoints) => StandaloneStore.Open(
        new StoreContext(
            disk, writer, [firstLane, secondLane], checkpoints, new ManualTime(), NullLogger.Instance, StoreBench.SmallOptions, completions),
        StoreBench.DirectoryPath);

    private static void RunAll(params SteppedExecutor[] executors)
    {
        while (Array.Exists(executors, static executor => executor.RunOne()))
        {
        }
    }

    private static string? Read(StandaloneStore store, string key)
    {
        using var snapshot = store.OpenSnapshot();
        return snapshot.TryGet(TreeId.Kv, StoreBench.Text(key), out var stored) ? System.Text.Encoding.UTF8.GetString(KvValue.Read(stored, out _)) : null;
    }
}
