using System.Globalization;
using KvCluster.Disk;
using KvCluster.Storage.Control;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// The newest meta page cannot be read at one start, and can at a later one: its sector was read again, or a torn write has replaced the one that was damaged.
/// Meanwhile the next checkpoint was being written, which reuses the pages of the one that nobody saw.
/// </summary>
public sealed class UnreadableMetaPageTests
{
    private const int Keys = 12;

    [Fact]
    public void PowerLoss_AtEveryCallOfTheNextCheckpoint_LosesNothingWhenTheMetaPageIsReadableAgain()
    {
        using var first = new StoreBench();
        first.Open();
        for (var key = 0; key < Keys; key++)
        {
            first.Write(request => request.Put(Key(key), new byte[3_000]));
            _ = first.Store.Checkpoints.RequestAsync();
            first.RunUntilIdle();
        }
        first.Close();
        var layout = new StoreLayout(StoreBench.DirectoryPath);
        var path = StoreLayout.Data(layout.State(layout.States(first.Disk)[^1]));
        var sound = first.Disk.ReadAll(path);
        var newest = Enumerable.Range(0, 2).MaxBy(page => MetaPage.TryDecode(sound.AsSpan(page * Page.Bytes, Page.Bytes), path)!.Revision) * Page.Bytes;
        // Where a meta page has zeros.
        first.Disk.FlipBit(path, newest + Page.Bytes - 1);
        var damaged = first.Disk.ReadAll(path);
        var crashes = 0;
        for (var isWhole = false; !isWhole; crashes += isWhole ? 0 : 1)
        {
            using var bench = new StoreBench(first.Disk.Copy());
            bench.Open();
            bench.Write(request => request.Put("more"u8, new byte[3_000]));
            bench.Disk.CrashAtCall = bench.Disk.Calls + crashes + 1;
            _ = bench.Store.Checkpoints.RequestAsync();
            bench.RunUntilIdle();
            isWhole = !bench.Disk.IsOff;
            bench.Close();
            bench.Disk.Restart(UnsyncedWrites.Kept);
            var content = bench.Disk.ReadAll(path);
            if (content.AsSpan(newest, Page.Bytes).SequenceEqual(damaged.AsSpan(newest, Page.Bytes)))
            {
                sound.AsSpan(newest, Page.Bytes).CopyTo(content.AsSpan(newest));
                bench.Disk.WriteAll(path, content);
            }
            bench.Open();
            Assert.Equal([.. Enumerable.Range(0, Keys).Select(static key => $"{key:00}"), "more"], bench.ReadAllKeys().Keys);
        }
        Assert.True(crashes > 5, $"Power was lost only {crashes} times.");
    }

    private static byte[] Key(int number) => StoreBench.Text(number.ToString("00", CultureInfo.InvariantCulture));
}
