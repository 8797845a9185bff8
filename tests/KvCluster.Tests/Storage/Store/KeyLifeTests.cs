using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Inspection;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Keys that expire, at a store that leads: never early, each once, soon, and the entries by which they are found.</summary>
public sealed class KeyLifeTests : IDisposable
{
    private readonly StoreBench _bench = new(options: StoreBench.SmallOptions with { RetainedJournalBytes = 1 << 30 });

    public KeyLifeTests() => _bench.Open();

    private ulong NowMs => (ulong)(_bench.Time.GetUtcNow() - DateTimeOffset.UnixEpoch).TotalMilliseconds;

    public void Dispose() => _bench.Dispose();

    [Fact]
    public void Key_ThatExpires_GoesOnceAndNeitherEarlyNorLate()
    {
        var expiry = NowMs + 1_000;
        Put("k", "v", expiry);
        Put("stays", "v", 0);
        var wentAt = 0ul;
        for (var step = 0; step < 100 && wentAt == 0; step++)
        {
            Pass(20);
            wentAt = _bench.Read("k") is null ? NowMs : 0;
        }
        Assert.InRange(wentAt, expiry, expiry + 40);
        Assert.True(_bench.Store.Pages.Roots.Published.ShardTime / 1_000 >= (long)expiry);
        Pass(60_000);
        Assert.Equal(["Expire k"], Ends());
        Assert.Equal("v", _bench.Read("stays"));
        Assert.Equal((0, 0), Entries());
    }

    [Fact]
    public void Key_ThatExpires_TakesNoneWithItThatIsDueLater()
    {
        var soon = NowMs + 1_000;
        Put("first", "v", soon);
        Put("second", "v", soon + 500);
        PassUntil(soon + 250);
        Assert.Equal(["second"], _bench.ReadAllKeys().Keys);
        PassUntil(soon + 750);
        Assert.Empty(_bench.ReadAllKeys());
    }

    [Fact]
    public void Key_ThatIsReplacedDeletedOrTouched_HasOnlyItsNewExpiry()
    {
        var soon = NowMs + 1_000;
        foreach (var key in (string[])["put", "later", "delete", "never", "touched", "absent"])
            Put(key, "v", soon);
        Put("put", "w", 0);
        Put("later", "w", soon + 1_000);
        _bench.Write(request => request.Delete("delete"u8));
        var etag = EtagOf("touched");
        _bench.Write(request => request.TouchUntil("never"u8, 0));
        _bench.Write(request => request.TouchUntil("touched"u8, soon + 2_000));
        _bench.Write(request => request.TouchUntil("none"u8, soon + 2_000));
        Assert.Equal(etag, EtagOf("touched"));
        Assert.Equal((3, 0), Entries());
        PassUntil(soon + 500);
        Assert.Equal(["later", "never", "put", "touched"], _bench.ReadAllKeys().Keys);
        PassUntil(soon + 1_500);
        Assert.Equal(["never", "put", "touched"], _bench.ReadAllKeys().Keys);
        PassUntil(soon + 2_500);
        Assert.Equal(["never", "put"], _bench.ReadAllKeys().Keys);
        Assert.Equal(["Expire absent", "Expire later", "Expire touched"], Ends());
    }

    /// <summary>A touch moves a value of any size, also one in pages of its own.</summary>
    [Theory]
    [InlineData(0)]
    [InlineData(100)]
    [InlineData(100_000)]
    public void Touch_KeepsTheValue(int length)
    {
        var value = new string('x', length);
        Put("k", value, 0);
        _bench.Write(request => request.TouchUntil("k"u8, NowMs + 100_000));
        Assert.Equal(value, _bench.Read("k"));
        Assert.Equal((1, 0), Entries());
        _bench.Write(request => request.TouchUntil("k"u8, 0));
        Assert.Equal(value, _bench.Read("k"));
        Assert.Equal((0, 0), Entries());
    }

    [Fact]
    public void Entries_ThatADeleteOfARangeLeaves_AreForgottenWhenTheyAreDue()
    {
        // With more expiries than keys they would be forgotten sooner.
        foreach (var key in (string[])["w", "x", "y", "z"])
            Put(key, "v", 0);
        var soon = NowMs + 1_000;
        foreach (var key in (string[])["a", "b", "c"])
            Put(key, "v", soon);
        _bench.Write(request => request.DeleteRange("a"u8, "c"u8));
        Put("a", "again", 0);
        Put("b", "again", soon + 1_000);
        Assert.Equal((4, 0), Entries());
        CheckFile();
        PassUntil(soon + 500);
        Assert.Equal(["a", "b", "w", "x", "y", "z"], _bench.ReadAllKeys().Keys);
        PassUntil(soon + 1_500);
        Assert.Equal(["a", "w", "x", "y", "z"], _bench.ReadAllKeys().Keys);
        Assert.Equal((0, 0), Entries());
        Assert.Equal(["ForgetExpiry a", "ForgetExpiry b", "Expire c", "Expire b"], Ends());
    }

    /// <summary>Keys that were to live for years and went with a range left their entries for years: put again and again, they filled the disk.</summary>
    [Fact]
    public void Entries_OfKeysThatGoWithRangesAgainAndAgain_AreNeverManyMoreThanKeys()
    {
        var late = NowMs + 1_000_000_000;
        Put("stays", "v", late);
        for (var round = 0; round < 40; round++)
        {
            _bench.Write(request =>
            {
                for (var key = 0; key < 50; key++)
                    request.Put(StoreBench.Text($"k{key}"), "v"u8, new KeyLife(late, Etag.None));
            });
            _bench.Write(request => request.DeleteRange("k"u8, "l"u8));
        }
        for (var put = 0; put < 20; put++)
            Put("other", "v", 0);
        Assert.InRange(Entries().Expiry, 1, 2);
        Assert.Equal("v", _bench.Read("stays"));
        Assert.Equal(["other", "stays"], _bench.ReadAllKeys().Keys);
        CheckFile();
    }

    [Fact]
    public void Keys_OfOneRequest_AreExpiredLikeOthers()
    {
        var soon = NowMs + 500;
        _bench.Write(request =>
        {
            request.Put("a"u8, "1"u8);
            request.Put("b"u8, "1"u8, new KeyLife(soon, Etag.None));
            request.Put("c"u8, "1"u8);
            request.Put("b"u8, "2"u8);
            request.Put("c"u8, "2"u8, new KeyLife(soon, Etag.None));
            request.Delete("c"u8);
            request.Put("d"u8, "1"u8, new KeyLife(soon, Etag.None));
        });
        Assert.Equal((1, 0), Entries());
        PassUntil(soon + 300);
        Assert.Equal(["a", "b"], _bench.ReadAllKeys().Keys);
    }

    /// <summary>Requests fill every record, and 3,000 keys expire at once. They take their share of the records.</summary>
    [Fact]
    public void Expiry_UnderLoad_IsLateByLessThanAQuarterOfASecond()
    {
        var soon = NowMs + 500;
        for (var part = 0; part < 3; part++)
        {
            _bench.Write(request =>
            {
                for (var key = 0; key < 1_000; key++)
                    request.Put(StoreBench.Text($"expiring-{part}-{key:d4}"), "v"u8, new KeyLife(soon, Etag.None));
            });
        }
        PassUntil(soon - 50);
        var value = new byte[30_000];
        var answers = new List<Task<WriteResult>>();
        while (NowMs < soon + 250)
        {
            for (var request = 0; request < 40; request++)
                answers.Add(_bench.Submit(change => change.Put(StoreBench.Text($"load-{request}"), value)));
            Pass(10);
        }
        Assert.All(answers, answer => Assert.Equal(WriteOutcome.Applied, StoreBench.Answer(answer).Outcome));
        Assert.Equal((0, 0), Entries());
        Assert.Equal(3_000, Ends().Count);
    }

    /// <summary>
    /// More requests wait than a record takes. What is due for a little while waits for a record with room, and what is due for longer comes first.
    /// </summary>
    [Fact]
    public void Expiry_BehindRequestsThatFillTheRecord_TakesItsShareWhenItIsLate()
    {
        using var bench = new ReplicaBench(new(1));
        bench.Lead(3);
        var nowMs = (ulong)(ReplicaBench.WallTime - DateTimeOffset.UnixEpoch).TotalMilliseconds;
        bench.Append(request =>
        {
            for (var key = 0; key < 5_000; key++)
                request.Put(StoreBench.Text($"expiring-{key:d4}"), "v"u8, new KeyLife(nowMs + 1_000, Etag.None));
        });
        for (var request = 0; request < 1_000; request++)
            bench.Submit(change => change.Put("load"u8, new byte[10_000]));
        Assert.Equal(0, ExpiredAt(1_050));
        Assert.InRange(ExpiredAt(1_150), 500, 4_000);
        Assert.False(bench.Store.Requests.Queue.IsEmpty);

        int ExpiredAt(int milliseconds)
        {
            var before = bench.Store.Log.Last.Etag;
            Assert.True(bench.AppendBatch(TimeSpan.FromMilliseconds(milliseconds)));
            var count = 0;
            using var payload = new RecordPayload(bench.BodiesAfter(before)[0].Span);
            for (var reader = new OperationReader(payload.Operations); reader.MoveNext();)
                count += reader.Code == OperationCode.Expire ? 1 : 0;
            bench.Commit(bench.Store.Log.Last.Etag);
            return count;
        }
    }

    [Theory]
    [InlineData(nameof(UnsyncedWrites.Dropped))]
    [InlineData(nameof(UnsyncedWrites.Kept))]
    [Trait("Turn", "7")]
    public void Crash_WhileKeysExpire_InOtherModes_LeavesNoneBehindAndEndsNoneEarly(string mode) =>
        Crash_WhileKeysExpire_LeavesNoneBehindAndEndsNoneEarly(mode);

    /// <summary>Power is lost at each call while keys expire and a session ends. Nothing expires early, and nothing stays for ever.</summary>
    [Theory]
    [InlineData(nameof(UnsyncedWrites.Reordered))]
    public void Crash_WhileKeysExpire_LeavesNoneBehindAndEndsNoneEarly(string mode)
    {
        for (var call = 1; ; call++)
        {
            using var disk = new SimulatedDisk { CrashAtCall = call };
            var hasCrashed = RunUntilCrash(disk);
            if (!hasCrashed)
                break;
            disk.Restart(Enum.Parse<UnsyncedWrites>(mode), call);
            using var bench = new StoreBench(disk, call);
            bench.Open();
            LifeBench.CheckFile(bench);
            for (var step = 0; step < 60; step++)
            {
                bench.Time.Advance(TimeSpan.FromMilliseconds(100));
                bench.RunUntilIdle();
            }
            Assert.All(bench.ReadAllKeys().Keys, key => Assert.Equal("stays", key));
            Assert.Equal((0, 0), LifeBench.Entries(bench));
        }
    }

    private static bool RunUntilCrash(SimulatedDisk disk)
    {
        using var bench = new StoreBench(disk);
        try
        {
            bench.Open();
            var soon = (ulong)(bench.Time.GetUtcNow() - DateTimeOffset.UnixEpoch).TotalMilliseconds + 200;
            var opened = bench.Submit(request => request.OpenSession(1, ReplicaBench.Owner, 1_000));
            bench.RunUntilIdle();
            if (!opened.IsCompletedSuccessfully || StoreBench.Answer(opened) is not { Outcome: WriteOutcome.Applied } session)
                return disk.IsOff;
            _ = bench.Submit(request => request.Put("stays"u8, "v"u8));
            for (var key = 0ul; key < 12; key++)
                _ = bench.Submit(
                    request => request.Put(StoreBench.Text($"k{key}"), "v"u8, new KeyLife(soon + (key * 100), key % 3 == 0 ? session.Etag : Etag.None)));
            for (var step = 0; step < 20 && !disk.IsOff; step++)
            {
                bench.RunUntilIdle();
                bench.Time.Advance(TimeSpan.FromMilliseconds(100));
                if (step == 7)
                    _ = bench.Store.Checkpoints.RequestAsync();
            }
            bench.RunUntilIdle();
        }
        catch (Exception opening) when (opening is SimulatedCrashException or StorageIoException)
        {
            Assert.True(disk.IsOff);
        }
        return disk.IsOff;
    }

    [Fact]
    public void Restart_ExpiresWhatWasDueMeanwhile_AndNothingTwice()
    {
        var soon = NowMs + 1_000;
        Put("a", "v", soon);
        Put("b", "v", soon + 60_000);
        Pass(900);
        _bench.Close();
        // No leader runs meanwhile, and shard time stands still.
        _bench.Time.Advance(TimeSpan.FromSeconds(5));
        _bench.Open();
        Assert.Equal(["a", "b"], _bench.ReadAllKeys().Keys);
        Pass(1_100);
        Assert.Equal(["b"], _bench.ReadAllKeys().Keys);
        _bench.Checkpoint();
        CheckFile();
        _bench.Close();
        _bench.Open();
        PassUntil(soon + 67_000);
        Assert.Empty(_bench.ReadAllKeys());
        Assert.Equal((0, 0), Entries());
    }

    /// <summary>Shard time once made up for an outage by running twice as fast: a key that had two minutes left was gone after half a minute.</summary>
    [Fact]
    public void Expiry_AfterAnHourWithoutALeader_IsLateAndNotEarly()
    {
        var expiry = NowMs + 120_000;
        Put("k", "v", expiry);
        _bench.Close();
        _bench.Time.Advance(TimeSpan.FromHours(1));
        _bench.Open();
        Pass(119_000);
        Assert.Equal("v", _bench.Read("k"));
        Pass(1_500);
        Assert.Null(_bench.Read("k"));
    }

    [Fact]
    public void Follower_AppliesTheSame()
    {
        using var leader = new ReplicaBench(new(1));
        using var follower = new ReplicaBench(new(2));
        leader.Lead(3);
        var nowMs = (ulong)(ReplicaBench.WallTime - DateTimeOffset.UnixEpoch).TotalMilliseconds;
        var opened = leader.Append(request => request.OpenSession(1, ReplicaBench.Owner, 10_000)).Etag;
        leader.Append(request =>
        {
            for (var key = 0; key < 50; key++)
                request.Put(StoreBench.Text($"k{key:d2}"), "v"u8, new KeyLife(nowMs + 1_000 + ((ulong)key * 100), key % 3 == 0 ? opened : Etag.None));
        });
        leader.Append(request => request.DeleteRange("k10"u8, "k20"u8));
        leader.Append(request => request.TouchUntil("k05"u8, 0));
        leader.Append(request => request.Put("k15"u8, "again"u8));
        for (var step = 1; step <= 4; step++)
        {
            leader.AppendBatch(TimeSpan.FromSeconds(step));
            leader.Commit(leader.Store.Log.Last.Etag);
            leader.Run();
        }
        Assert.Equal(WriteOutcome.Applied, leader.Append(request => request.EndSession(1)).Outcome);
        follower.Follow(leader);
        follower.Commit(leader.Store.Log.Last.Etag);
        follower.Run();
        Assert.Equal(leader.Digest(), follower.Digest());
        Assert.Equal("v", follower.Read("k05"));
        Assert.Equal("again", follower.Read("k15"));
        Assert.Null(follower.Read("k30"));
        Assert.Equal("v", follower.Read("k49"));
    }

    [Fact]
    public void Entry_ThatIsMissing_IsFound()
    {
        Put("k", "v", NowMs + 100_000);
        var keys = StoredKeys();
        _bench.Checkpoint();
        _bench.Close();
        DropExpiries(keys);
        Assert.Contains(StoreCheck.Run(_bench.Disk, StoreBench.DirectoryPath).Findings, found => found.IsDamage
            && found.What.Contains("not in the tree expiry", StringComparison.Ordinal));
        using (var recovery = StoreRecovery.Begin(_bench.Disk, StoreBench.DirectoryPath))
            recovery.Run();
        Assert.DoesNotContain(StoreCheck.Run(_bench.Disk, StoreBench.DirectoryPath).Findings, found => found.IsDamage);
        _bench.Open();
        Assert.Equal((1, 0), Entries());
    }

    private void Put(string key, string value, ulong expiry) =>
        Assert.Equal(
            WriteOutcome.Applied, _bench.Write(request => request.Put(StoreBench.Text(key), StoreBench.Text(value), new KeyLife(expiry, Etag.None))).Outcome);

    private void Pass(int milliseconds)
    {
        _bench.Time.Advance(TimeSpan.FromMilliseconds(milliseconds));
        _bench.RunUntilIdle();
    }

    private void PassUntil(ulong milliseconds)
    {
        while (NowMs < milliseconds)
            Pass(50);
    }

    private Etag EtagOf(string key)
    {
        using var snapshot = _bench.Standalone.OpenSnapshot();
        Assert.True(snapshot.TryGet(TreeId.Kv, StoreBench.Text(key), out var stored));
        _ = KvValue.Read(stored, out var etag);
        return etag;
    }

    /// <summary>Writes another data file for the same checkpoint, which has the keys and not their expiries.</summary>
    private void DropExpiries(List<(byte[] Key, byte[] Stored)> keys)
    {
        CheckpointPosition covers;
        byte[] identity;
        using (var replica = StoppedReplica.Open(_bench.Disk, StoreBench.DirectoryPath))
            (covers, identity) = (replica.Newest!.CheckpointPosition, StoreDirectory.IdentityOf(replica.Control!));
        const string Data = StoreBench.DirectoryPath + "/state-00000001/data";
        _bench.Disk.Delete(Data);
        using var pages = PageStore.Create(_bench.Disk, Data, new PageStoreOptions(), identity);
        var batch = pages.Begin();
        foreach (var (key, stored) in keys)
            batch.Put(TreeId.Kv, key, stored);
        pages.Roots.Seal(batch, covers.Etag);
        pages.Roots.Publish(covers.Etag);
        var checkpoint = pages.BeginCheckpoint(_ => covers, covers.Etag, repeats: true)!;
        checkpoint.Write();
        pages.FinishCheckpoint(checkpoint);
    }

    private List<(byte[] Key, byte[] Stored)> StoredKeys()
    {
        var keys = new List<(byte[] Key, byte[] Stored)>();
        using var snapshot = _bench.Standalone.OpenSnapshot();
        using var cursor = snapshot.Cursor(TreeId.Kv);
        while (cursor.MoveNext())
            keys.Add((cursor.Key.ToArray(), cursor.Value.ToArray()));
        return keys;
    }

    /// <summary>The numbers of entries in the trees that find keys by expiry and by owner.</summary>
    private (int Expiry, int Owned) Entries() => LifeBench.Entries(_bench);

    private List<string> Ends() => LifeBench.Ends(_bench);

    private void CheckFile() => LifeBench.CheckFile(_bench);
}

/// <summary>What tests of lives look at.</summary>
internal static class LifeBench
{
    /// <summary>The numbers of entries in the trees that find keys by expiry and by owner.</summary>
    public static (int Expiry, int Owned) Entries(StoreBench bench) =>
        ((int)bench.Store.Pages.Roots.Count(TreeId.Expiry), (int)bench.Store.Pages.Roots.Count(TreeId.Owned));

    /// <summary>The ends in the journal, in order.</summary>
    public static List<string> Ends(StoreBench bench)
    {
        var (ends, bodies) = (new List<string>(), new List<ReadOnlyMemory<byte>>());
        Assert.True(bench.Store.Reader.ReadBodies(Etag.None, int.MaxValue, bodies) >= 0);
        foreach (var body in bodies)
        {
            using var payload = new RecordPayload(body.Span);
            for (var reader = new OperationReader(payload.Operations); reader.MoveNext();)
            {
                if (reader.Code is OperationCode.Expire or OperationCode.ForgetExpiry or OperationCode.DeleteOwned)
                    ends.Add($"{reader.Code} {System.Text.Encoding.UTF8.GetString(reader.Key)}");
                else if (reader.Code == OperationCode.SessionEnd)
                    ends.Add($"{reader.Code} {(ulong)reader.Session}");
                if (reader.Code == OperationCode.Expire)
                    Assert.True(RecordBody.ShardTimeMicroseconds(body.Span) / 1_000 >= (long)reader.ExpiryMilliseconds, "A key expires before its time.");
            }
        }
        return ends;
    }

    /// <summary>The entries that say what is left of sessions.</summary>
    public static List<string> Rests(StoreBench bench)
    {
        var rests = new List<string>();
        using var snapshot = bench.Standalone.OpenSnapshot();
        using var cursor = snapshot.Cursor(TreeId.Sessions);
        while (cursor.MoveNext())
        {
            if (cursor.Key is [9, ..])
                rests.Add($"{Convert.ToHexString(cursor.Key)} = {Convert.ToHexString(cursor.Value)}");
        }
        return rests;
    }

    /// <summary>Writes a checkpoint, and checks its trees.</summary>
    public static void CheckFile(StoreBench bench)
    {
        bench.Checkpoint();
        using var disk = bench.Disk.Copy();
        Assert.DoesNotContain(StoreCheck.Run(disk, StoreBench.DirectoryPath).Findings, static found => found.IsDamage);
    }
}
