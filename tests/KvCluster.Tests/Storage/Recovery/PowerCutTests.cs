using System.Globalization;
using KvCluster.Processes;
using KvCluster.Storage;
using KvCluster.Storage.Context;
using KvCluster.Storage.Files;
using Microsoft.Extensions.Logging.Abstractions;
using Xunit.Abstractions;

namespace KvCluster.Tests.Storage.Recovery;

/// <summary>
/// A power cut as near as it can be had: the file system under a store that is written at full speed is copied at one moment, with all that its device has and
/// nothing that is still in memory, and mounted again. Run by tests/nightly/power-cut-engine, which makes the pool.
/// </summary>
public sealed class PowerCutTests(ITestOutputHelper output)
{
    private const int CheckpointsForHoles = 3;

    /// <summary>Small files, so that each second has some checkpoints and many segments.</summary>
    private static readonly StoreOptions Options = new()
    {
        SegmentBytesMax = 4 << 20,
        RetainedJournalBytes = 0,
        CheckpointJournalBytes = 8 << 20,
        CheckpointScratchBytes = 16 << 20,
        Pages = new() { MapBytes = 4L << 30 },
    };

    private static readonly string Pool = Environment.GetEnvironmentVariable("KV_POWER_CUT_POOL") ?? "";

    [PowerCutFact]
    public async Task PowerCut_UnderAStoreAtFullSpeed_LeavesEverythingAnsweredAndWholeTransactions()
    {
        var cuts = int.Parse(Environment.GetEnvironmentVariable("KV_POWER_CUTS") ?? "3", CultureInfo.InvariantCulture);
        var random = Seeds.Next(output);
        var load = new PowerCutLoad();
        await RunAsync("truncate", "-s", "2G", Image(0));
        await RunAsync("mkfs.ext4", "-q", "-F", Image(0));
        await MountAsync(0);
        // What must have happened between the cuts, or they prove little.
        var (checkpoints, shortened, withHoles, last) = (0ul, 0, 0, 0);
        // Some more where a slow machine does little between them.
        for (var cut = 1; cut <= cuts || (HasHappenedTooLittle() && cut <= 5 * cuts); cut++)
        {
            last = cut;
            ulong revision;
            long length = 0;
            var checkpoint = Task.CompletedTask;
            using (var store = Open(cut - 1))
            {
                revision = store.Store.Pages.Meta.Newest.Revision;
                await load.PutLargeAsync(store);
                load.Start(store);
                var until = load.Answered + 2_000;
                var pause = TimeSpan.FromMilliseconds(random.Next(300, 2_500));
                for (var waited = TimeSpan.Zero; waited < pause || load.Answered < until; waited += TimeSpan.FromMilliseconds(10))
                {
                    await Task.Delay(10);
                    Assert.False(store.Failure.IsCompleted, "The store has failed.");
                    shortened += store.Store.Pages.FileBytes < length ? 1 : 0;
                    length = store.Store.Pages.FileBytes;
                    // One after the other, so that deleted keys give their space back at once.
                    if (checkpoint.IsCompleted)
                        checkpoint = store.Store.Checkpoints.RequestAsync();
                }
                // Their space is free after one checkpoint, and given back after the next.
                await load.DeleteEverySecondLargeAsync(store);
                for (var more = 0; more < CheckpointsForHoles; more++)
                    await store.Store.Checkpoints.RequestAsync();
                load.NoteAnswered();
                await RunAsync("cp", "--reflink=always", Image(cut - 1), Image(cut));
                (revision, length) = (store.Store.Pages.Meta.Newest.Revision - revision, store.Store.Pages.FileBytes);
                // As a kill of the process: nothing that waits is written.
            }
            await load.StopAsync();
            withHoles += await AllocatedAsync(cut - 1) < length ? 1 : 0;
            await RunAsync("umount", Mount(cut - 1));
            File.Delete(Image(cut - 1));
            await MountAsync(cut);
            await CheckAsync(cut);
            using (var store = Open(cut))
                await load.CheckAsync(store, $"cut {cut}");
            checkpoints += revision;
            output.WriteLine(
                $"cut {cut}: {load.Answered} transactions are there, {revision} checkpoints since the last cut, the data file has {length >> 20} MiB");
        }
        await RunAsync("umount", Mount(last));
        output.WriteLine($"in all {checkpoints} checkpoints; the data file was cut {shortened} times, and had holes at {withHoles} of {last} power cuts");
        Assert.False(HasHappenedTooLittle(), "Too little happened between the cuts.");

        bool HasHappenedTooLittle() => checkpoints <= (ulong)cuts || shortened <= cuts / 10 || withHoles <= cuts / 10;
    }

    private static string Image(int number) => Path.Combine(Pool, $"image-{number}");

    private static string Mount(int number) => Path.Combine(Pool, $"mount-{number}");

    private static string Replica(int number) => Path.Combine(Mount(number), "shards", "1");

    private static StandaloneStore Open(int number)
    {
        Directory.CreateDirectory(Path.GetDirectoryName(Replica(number))!);
        return StandaloneStore.Open(LocalDisk.Instance, Replica(number), Options, TimeProvider.System, NullLogger.Instance);
    }

    private static async Task MountAsync(int number)
    {
        Directory.CreateDirectory(Mount(number));
        await RunAsync("mount", "-o", "loop", Image(number), Mount(number));
    }

    /// <summary>As an operator checks it.</summary>
    private static async Task CheckAsync(int number)
    {
        var said = await RunAsync(Path.Combine(AppContext.BaseDirectory, "kv-node"), "storage", "check", Replica(number));
        Assert.Contains("is intact", said, StringComparison.Ordinal);
    }

    /// <summary>The bytes that the data file takes from the file system.</summary>
    private static async Task<long> AllocatedAsync(int number) =>
        512 * long.Parse(await RunAsync("stat", "-c", "%b", Path.Combine(Replica(number), "state-00000001", "data")), CultureInfo.InvariantCulture);

    private static async Task<string> RunAsync(string program, params string[] arguments)
    {
        var (code, said, error) = await Tools.RunAsync(program, arguments);
        Assert.True(code == 0, $"{program} {string.Join(' ', arguments)} ended with {code}: {said} {error}");
        return said;
    }

    /// <summary>A test that mounts file systems. The nightly script gives it a pool; otherwise it is skipped.</summary>
    [AttributeUsage(AttributeTargets.Method)]
    private sealed class PowerCutFactAttribute : FactAttribute
    {
        public PowerCutFactAttribute() => Skip = Pool.Length > 0 ? null : "tests/nightly/power-cut-engine runs it, as root, where loop devices and btrfs are";
    }
}
