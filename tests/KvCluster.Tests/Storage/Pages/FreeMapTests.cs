using KvCluster.Disk;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>The free map in a file: what is written is read again, also by a file so long that the directory has two levels.</summary>
public sealed class FreeMapTests
{
    [Theory]
    [InlineData(1_000)]
    [InlineData(508L * 30_720)]
    [InlineData((508L * 30_720) + 1)]
    [InlineData(200L << 17)]
    public void Map_OfAFileOfThisManyPages_IsReadAgain(long filePages)
    {
        using var disk = new SimulatedDisk();
        using var file = disk.Open("map", new StorageFileOptions(StorageFileMode.CreateNew));
        var space = new PageSpace(file, 1 << 30);
        space.Reserve(2);
        var map = FreeMap.Load(space, MetaOf(2, default));
        map.BeginNext([], 1, default);
        // Far apart, so that map pages of all parts of the file differ.
        var taken = map.Take(3, (_, _) => filePages);
        var written = Write(map, file, space);
        var read = FreeMap.Load(space, MetaOf(filePages, written));
        Assert.Equal(map.FreeRuns(), read.FreeRuns());
        Assert.Equal(map.PendingRuns(), read.PendingRuns());
        Assert.Equal(map.UsedRuns(), read.UsedRuns());
        Assert.Equal((filePages + 30_719) / 30_720, map.MapPages().Count() - (filePages > 508L * 30_720 ? (((filePages + 30_719) / 30_720) + 507) / 508 : 0));

        // Only a few pages of the next map differ.
        map.Keep();
        var before = map.MapPages().Select(link => link.Reference).ToHashSet();
        map.BeginNext([new PageRun(taken, 3)], 1, default);
        written = Write(map, file, space);
        Assert.InRange(map.MapPages().Count(link => !before.Contains(link.Reference)), 1, 4);
        Assert.Equal(map.PendingRuns(), FreeMap.Load(space, MetaOf(filePages, written)).PendingRuns());
    }

    [Fact]
    [Trait("Turn", "3")]
    public void Map_OfTheLargestFile_IsReadAgain() => Map_OfAFileOfThisManyPages_IsReadAgain(FreeMap.FilePagesMax);

    /// <summary>What changes behind the first 508 map pages is listed in the second page of the directory, which is written with it.</summary>
    [Fact]
    public void Map_ChangedUnderTheSecondPageOfTheDirectory_IsReadAgain()
    {
        const long Boundary = 508L * 30_720, FilePages = Boundary + 100_000;
        const int Front = 10_000;
        using var disk = new SimulatedDisk();
        using var file = disk.Open("map", new StorageFileOptions(StorageFileMode.CreateNew));
        var space = new PageSpace(file, 1 << 30);
        space.Reserve(2);
        var map = FreeMap.Load(space, MetaOf(2, default));
        map.BeginNext([], 1, default);
        var front = new PageRun(map.Take(Front, (_, _) => FilePages), Front);
        map.Take((int)(FilePages - 2 - Front), (_, _) => FilePages);
        map.Keep();
        // Only the front is free, so the map's own pages are there.
        map.BeginNext([front], 1, default);
        map.Keep();
        map.BeginNext([], 1, default);
        map.Keep();
        map.AllowReuse(front);
        map.BeginNext([], 1, default);
        var written = Write(map, file, space);
        Assert.Equal(map.UsedRuns(), FreeMap.Load(space, MetaOf(FilePages, written)).UsedRuns());

        map.Keep();
        var left = new PageRun(Boundary + 5_000, 50);
        map.BeginNext([left], 1, default);
        written = Write(map, file, space);
        var read = FreeMap.Load(space, MetaOf(FilePages, written));
        Assert.Contains(left, map.PendingRuns());
        Assert.Equal(map.PendingRuns(), read.PendingRuns());
        Assert.Equal(map.FreeRuns(), read.FreeRuns());
    }

    /// <summary>A checkpoint that is abandoned leaves the map as it was, although it took pages, grew the file or cut its end.</summary>
    [Fact]
    public void Restore_AfterACutAndGrowth_ReturnsToTheMapBefore()
    {
        using var disk = new SimulatedDisk();
        using var file = disk.Open("map", new StorageFileOptions(StorageFileMode.CreateNew));
        var space = new PageSpace(file, 1 << 30);
        space.Reserve(2);
        var map = FreeMap.Load(space, MetaOf(2, default));
        map.BeginNext([], 1, default);
        map.Take(1, (_, _) => 100_000);
        Write(map, file, space);
        map.Keep();
        var (pages, free, places) = (map.FilePages, map.ReusableRuns(), map.MapPages().ToList());
        for (var round = 0; round < 2; round++)
        {
            map.BeginNext([], 1, default);
            if (round == 0)
                map.CutEnd();
            else
                map.Take(200_000, (needed, _) => needed);
            Write(map, file, space);
            Assert.NotEqual(pages, map.FilePages);
            map.Restore();
            Assert.Equal((pages, true), (map.FilePages, map.MapPages().SequenceEqual(places)));
            Assert.Equal(free, map.ReusableRuns());
        }
    }

    /// <summary>Pages are freed for reuse and taken on the writer's path, one at a time and in great numbers.</summary>
    [Fact]
    public void AllowReuseAndTake_OfSinglePages_AllocateNothing()
    {
        const int Pages = 20_000;
        using var disk = new SimulatedDisk();
        using var file = disk.Open("map", new StorageFileOptions(StorageFileMode.CreateNew));
        var space = new PageSpace(file, 1 << 30);
        space.Reserve(2);
        var map = FreeMap.Load(space, MetaOf(2, default));
        map.BeginNext([], Pages, default);
        var first = map.Take(Pages, (_, _) => 4 * Pages);
        Write(map, file, space);
        map.Keep();
        // Every other page, so that each is a run of its own. Pending in one checkpoint, free in the next.
        var left = Enumerable.Range(0, Pages / 2).Select(page => new PageRun(first + (2 * page), 1)).ToList();
        map.BeginNext(left, 1, default);
        Write(map, file, space);
        map.Keep();
        map.BeginNext([], 1, default);
        Write(map, file, space);
        map.Keep();
        FileGrowth grow = (_, _) => throw new InvalidOperationException("There is free space.");
        map.AllowReuse(left[0]);
        var allocated = Allocations.Of(() =>
        {
            for (var page = 1; page < left.Count; page++)
                map.AllowReuse(left[page]);
        });
        Assert.InRange(allocated, 0, Allocations.Context);

        map.BeginNext([], Pages, default);
        var taken = new bool[4 * Pages];
        taken[map.Take(1, grow)] = true;
        allocated = Allocations.Of(() =>
        {
            for (var page = 1; page < left.Count; page++)
            {
                ref var isTaken = ref taken[map.Take(1, grow)];
                Assert.False(isTaken);
                isTaken = true;
            }
        });
        Assert.InRange(allocated, 0, Allocations.Context);
    }

    private static PageLink Write(FreeMap map, IStorageFile file, PageSpace space)
    {
        using var writer = new PageWriter(file, space, 1 << 20);
        var written = map.WriteNext(writer, (needed, _) => needed, new Etag(1, 1));
        writer.Flush();
        return written;
    }

    private static MetaPage MetaOf(long filePages, PageLink map) => new()
    {
        Revision = 1,
        Identity = 0, FilePages = filePages, FreeDirectory = map.Reference, FreeDirectoryChecksum = map.Checksum, Trees = new TreeRoot[StoreRoot.TreesMax],
    };
}
