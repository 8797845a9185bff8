using KvCluster.Storage.DataFile;
using KvCluster.Storage.Pages;
using KvCluster.Tests.Storage.Pages;
using Microsoft.Win32.SafeHandles;

namespace KvCluster.Tests.Storage.Checkpoints;

/// <summary>A data file of 200 GB, of which only the pages in use are on the disk. Its pages lie before and behind 200 GB that nothing reaches.</summary>
public sealed class LargeFileTests
{
    private const int GapPages = 200 << 17;

    /// <summary>Each step of a checkpoint writes one page.</summary>
    private static readonly PageStoreOptions Options = new() { WriteBytes = Page.Bytes };

    [Fact]
    [Trait("Turn", "3")]
    public void File_Of200Gigabytes_IsWrittenReadAndFreed()
    {
        using var file = new DataFile(Options);
        Put(file, etag: 1, keys: 500);
        file.Checkpoint();
        var length = file.Pages.FileBytes;
        file.Pages.Dispose();
        SetLength(file.FilePath, length + (GapPages + 10_000L) * Page.Bytes);
        file.Reopen();
        Put(file, etag: 2, keys: 500);
        var checkpoint = file.Begin()!;
        Assert.False(checkpoint.WriteStep());
        var taken = new List<PageRun>();
        for (var rest = file.Pages.Free.ReusableRuns().Sum(run => run.Count); rest > 0; rest--)
            taken.Add(new PageRun(file.Pages.Free.Take(1, file.Pages.FileSpace.Grow), 1));
        taken.Add(new PageRun(file.Pages.Free.Take(GapPages, file.Pages.FileSpace.Grow), GapPages));
        checkpoint.Write();
        file.Pages.FinishCheckpoint(checkpoint);
        var root = file.Pages.Meta.Newest.Trees[(int)TreeId.Kv].Link.Reference.Number;
        Assert.True(root > GapPages, $"The root is in page {root}.");
        Check(file, etag: 2);
        file.Reopen();
        Check(file, etag: 2);

        // From here on what was taken is free.
        for (var etag = 3ul; etag < 9; etag++)
        {
            Put(file, etag, keys: 500);
            checkpoint = file.Begin()!;
            if (etag == 3)
                checkpoint.Left.AddRange(taken);
            checkpoint.Write();
            file.Pages.FinishCheckpoint(checkpoint);
            while (file.Pages.TryChooseSurplus(out var part))
            {
                if (part.Bytes > 0)
                    file.Pages.FileSpace.GiveBack(part);
            }
            Check(file, etag);
            file.Reopen();
        }
        file.Pages.Verify();
        Check(file, etag: 8);
    }

    private static void Put(DataFile file, ulong etag, int keys)
    {
        var batch = file.Pages.Begin();
        for (var key = 0; key < keys; key++)
            batch.Put(TreeId.Kv, BitConverter.GetBytes(key), Value(key, etag));
        file.Pages.Roots.Seal(batch, new Etag(0, etag));
        file.Pages.Roots.Publish(new Etag(0, etag));
    }

    private static void Check(DataFile file, ulong etag)
    {
        using var snapshot = file.Pages.Roots.OpenSnapshot();
        for (var key = 0; key < 500; key++)
        {
            Assert.True(snapshot.TryGet(TreeId.Kv, BitConverter.GetBytes(key), out var value));
            Assert.True(value.SequenceEqual(Value(key, etag)), $"Key {key} has not its value of etag {etag}.");
        }
    }

    private static byte[] Value(int key, ulong etag)
    {
        var value = new byte[key % 20 == 0 ? 20_000 : 1_000];
        new Random((key * 100) + (int)etag).NextBytes(value);
        return value;
    }

    private static void SetLength(string path, long length)
    {
        using SafeFileHandle handle = File.OpenHandle(path, FileMode.Open, FileAccess.ReadWrite);
        RandomAccess.SetLength(handle, length);
    }
}
