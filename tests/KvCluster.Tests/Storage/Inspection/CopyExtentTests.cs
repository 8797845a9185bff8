using KvCluster.Disk;
using KvCluster.Storage.Inspection;
using KvCluster.Storage.Recovery;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Inspection;

/// <summary>
/// How far a copy that was set aside reaches. Whoever deletes the copy relies on it, so it is told only if nothing that was durable can be behind it.
/// </summary>
public sealed class CopyExtentTests : IDisposable
{
    private const string Control = ReplicaBench.DirectoryPath + "/control";
    private const string Data = ReplicaBench.DirectoryPath + "/state-00000001/data";
    private readonly ReplicaBench _replica = new(new(9));
    private readonly Etag _newest;

    public CopyExtentTests()
    {
        _replica.Lead(1);
        for (var number = 0; number < 4; number++)
            _ = _replica.Put($"committed-{number}", "1");
        _replica.Commit(_replica.Store.Log.Last.Etag);
        _replica.Run();
        _ = _replica.Put("prepared", "2");
        _newest = _replica.Store.Log.Last.Etag;
    }

    public void Dispose() => _replica.Dispose();

    [Fact]
    public void Newest_OfASoundCopy_IncludesItsPreparedRecords()
    {
        using var disk = _replica.Disk.Copy();
        var extent = CopyExtent.Read(disk, ReplicaBench.DirectoryPath);
        Assert.Equal(((Etag?)_newest, "", new ReplicaId(9), new ShardId(1)), (extent.Newest, extent.WhyUnknown, extent.Replica, extent.Shard));
        Assert.True(_newest > extent.Control!.Committed);
    }

    /// <summary>The two usual reasons for which a replica is set aside say nothing against its journal.</summary>
    [Fact]
    public void Newest_OfAQuarantinedCopyWithADamagedPage_IsKnown()
    {
        var done = _replica.Store.Checkpoints.RequestAsync();
        _replica.Run();
        Assert.True(done.IsCompletedSuccessfully);
        using var disk = _replica.Disk.Copy();
        QuarantineMark.Write(disk, ReplicaBench.DirectoryPath, "its tree is wrong");
        disk.FlipBit(Data, (2 * 8192) + 100);
        Assert.Equal(_newest, CopyExtent.Read(disk, ReplicaBench.DirectoryPath).Newest);
    }

    [Fact]
    public void Newest_WithoutAControlFile_IsUnknown()
    {
        using var disk = _replica.Disk.Copy();
        disk.Delete(Control);
        AssertUnknown(disk);
    }

    [Fact]
    public void Newest_WithoutMetaPages_IsUnknown()
    {
        using var disk = _replica.Disk.Copy();
        disk.FlipBit(Data, 8192 + 100);
        Assert.Equal(_newest, CopyExtent.Read(disk, ReplicaBench.DirectoryPath).Newest);
        disk.FlipBit(Data, 100);
        AssertUnknown(disk);
    }

    /// <summary>Each block of each segment in turn. Behind a damaged record there may have been any, so an earlier one is never taken for the newest.</summary>
    [Fact]
    public void Newest_WithADamagedBlockOfTheJournal_IsUnknownOrRight()
    {
        var unknown = 0;
        foreach (var segment in StoreBench.PathsOf(_replica.Disk, ReplicaBench.DirectoryPath)
            .Where(static path => path.EndsWith(".journal", StringComparison.Ordinal)).ToList())
        {
            for (var offset = 100; offset < _replica.Disk.ReadAll(segment).Length; offset += 4096)
            {
                using var disk = _replica.Disk.Copy();
                disk.FlipBit(segment, offset);
                var newest = CopyExtent.Read(disk, ReplicaBench.DirectoryPath).Newest;
                Assert.True(newest is null || newest == _newest, $"With a flipped bit at {offset} of {segment} the newest record is {newest}.");
                unknown += newest is null ? 1 : 0;
            }
        }
        // The record that opened the epoch, four committed ones and the prepared one.
        Assert.InRange(unknown, 6, int.MaxValue);
    }

    [Fact]
    public void Newest_OfADirectoryThatIsNoReplica_IsUnknown()
    {
        using var disk = new SimulatedDisk();
        disk.CreateDirectory("/other");
        AssertUnknown(disk, "/other");
    }

    private static void AssertUnknown(SimulatedDisk disk, string directory = ReplicaBench.DirectoryPath)
    {
        var extent = CopyExtent.Read(disk, directory);
        Assert.Null(extent.Newest);
        Assert.NotEmpty(extent.WhyUnknown);
    }
}
