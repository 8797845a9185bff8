using KvCluster.Internal.V1;
using KvCluster.Node.Hosting;
using KvCluster.Replication.Protocol;
using KvCluster.Tests.ServiceDefaults.Security;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>When a replica's directory may be retired, and what becomes of it.</summary>
public sealed class RetirementTests
{
    private static readonly Retirement Seen = new(Generation: 5, Epoch: 7, new RecordVersion(0, 100));

    [Theory]
    [InlineData(5, 7, 100, true, false, null)]
    [InlineData(6, 8, 120, true, false, null)]
    [InlineData(6, 8, 120, true, true, "names it")]
    [InlineData(6, 8, 120, false, false, "does not list it")]
    [InlineData(4, 8, 120, true, false, "older")]
    [InlineData(6, 6, 120, true, false, "older")]
    [InlineData(6, 8, 99, true, false, "older")]
    public void WhyNot_AllowsRetirementOnlyByANewerRecordThatListsTheReplicaAsRemoved(
        ulong generation, ulong epoch, long revision, bool isRemoved, bool isNamed, string? why)
    {
        var record = new ShardRecord { Generation = generation, Epoch = epoch };
        if (isRemoved)
            record.Removed.Add(42);
        if (isNamed)
            record.Replicas.Add(new ReplicaRecord { Replica = 42, Node = 1 });
        var reason = Seen.WhyNot(record, revision, new(42));
        if (why is null)
            Assert.Null(reason);
        else
            Assert.Contains(why, reason, StringComparison.Ordinal);
    }

    /// <summary>The records were rebuilt from the nodes, in a coordinator whose revisions begin anew (F53).</summary>
    [Theory]
    [InlineData(1, 2, true)]
    [InlineData(0, 1_000, false)]
    public void WhyNot_ComparesTheRecoveryBeforeTheRevision(ulong recovery, long revision, bool isAllowed)
    {
        var seen = Seen with { Version = recovery == 0 ? new RecordVersion(1, 1) : new RecordVersion(0, 100) };
        var record = new ShardRecord { Generation = 6, Epoch = 8, Recovery = recovery, Removed = { 42 } };
        Assert.Equal(isAllowed, seen.WhyNot(record, revision, new(42)) is null);
    }

    /// <summary>The advice was to repair the record, which nothing does.</summary>
    [Fact]
    public void Replica_ThatIsKeptAgainstItsRecord_IsLoggedWithTheCommandThatRaisesOldRecords()
    {
        var log = new LinesLog();
        HostLog.ReplicaNotRetired(log, new(3), new(42), "it is older");
        Assert.EndsWith("raise its records: kv admin coordinator recover --plan", Assert.Single(log.Lines), StringComparison.Ordinal);
    }

    [Fact]
    public async Task MakeRoom_OnANearlyFullDisk_DeletesTheOldestFirst()
    {
        using var folder = new TemporaryDirectory();
        var now = DateTime.UtcNow;
        foreach (var (name, ageHours) in new[] { ("0-a", 1), ("1-b", 3), ("2-c", 2) })
        {
            var retired = Directory.CreateDirectory(Path.Combine(folder.Path, name));
            await File.WriteAllTextAsync(Path.Combine(retired.FullName, "data"), "x");
            retired.LastWriteTimeUtc = now - TimeSpan.FromHours(ageHours);
        }
        var free = 100L;
        await using var retiredReplicas = new RetiredSpace(folder.Path, () => (free, 100), TimeProvider.System, NullLogger.Instance);
        retiredReplicas.MakeRoom(CancellationToken.None);
        Assert.Equal(3, Directory.GetDirectories(folder.Path).Length);
        // There is space for one more as soon as the second is deleted.
        var full = new RetiredSpace(
            folder.Path, () => (Directory.GetDirectories(folder.Path).Length > 1 ? 19 : 20, 100), TimeProvider.System, NullLogger.Instance);
        await using (full)
            await Eventually.TrueAsync(() => Directory.GetDirectories(folder.Path).Length == 1, "two are deleted");
        Assert.Equal("0-a", Path.GetFileName(Directory.GetDirectories(folder.Path).Single()));
    }

    /// <summary>More than a fifth of the disk was free, so they were kept, but a large replica needed more than that to be rebuilt.</summary>
    [Fact]
    public async Task MakeRoom_WhileAReplicaLacksSpace_DeletesOne()
    {
        using var folder = new TemporaryDirectory();
        foreach (var name in (string[])["0-a", "1-b", "2-c"])
            Directory.CreateDirectory(Path.Combine(folder.Path, name));
        Directory.SetLastWriteTimeUtc(Path.Combine(folder.Path, "1-b"), DateTime.UtcNow - TimeSpan.FromHours(1));
        var lacking = 1;
        await using var retired = new RetiredSpace(
            folder.Path, static () => (100, 100), TimeProvider.System, NullLogger.Instance) { IsRoomLacking = () => Interlocked.Exchange(ref lacking, 0) == 1 };
        retired.MakeRoom(CancellationToken.None);
        await Eventually.TrueAsync(() => Directory.GetDirectories(folder.Path).Length == 2, "one is deleted");
        retired.MakeRoom(CancellationToken.None);
        Assert.Equal(["0-a", "2-c"], Directory.GetDirectories(folder.Path).Select(Path.GetFileName).Order(StringComparer.Ordinal));
    }
}
