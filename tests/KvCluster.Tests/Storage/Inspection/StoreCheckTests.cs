using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text.RegularExpressions;
using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Inspection;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Trees;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Inspection;

/// <summary>What the tools for a stopped replica find and keep. Damage of the journal and the control file: <c>RecoveryDecisionsTests</c>.</summary>
public sealed partial class StoreCheckTests : IDisposable
{
    private const int KeyCount = 300;
    private const string Data = StoreBench.DirectoryPath + "/state-00000001/data";
    private readonly StoreBench _bench = new();
    private readonly SortedDictionary<string, string> _state;

    public StoreCheckTests()
    {
        _bench.Open();
        for (var index = 0; index < KeyCount; index++)
            Write(index, 'a');
        _bench.Checkpoint();
        Write(7, 'b');
        _bench.Checkpoint();
        _state = _bench.ReadAllKeys();
        _bench.Close();
    }

    public void Dispose() => _bench.Dispose();

    /// <summary>
    /// A bit in the middle of each page in use is found where it is, and what can still be read is recovered: everything but the keys that the report names.
    /// </summary>
    [Fact]
    public void Page_WithAFlippedBit_IsNamedAndTheOtherKeysAreRecovered()
    {
        var (found, recovered) = (0, 0);
        var pages = _bench.Disk.ReadAll(Data).Length / Page.Bytes;
        for (var page = 0; page < pages; page++)
        {
            using var disk = _bench.Disk.Copy();
            disk.FlipBit(Data, (page * Page.Bytes) + 100);
            var report = StoreCheck.Run(disk, StoreBench.DirectoryPath);
            if (page < 2)
            {
                Assert.Contains(report.Findings, finding => !finding.IsDamage && finding.Offset == page * Page.Bytes);
                continue;
            }
            if (!report.IsDamaged)
                continue;
            found++;
            if (report.Row.Name == "sound")
                Assert.Contains(
                    report.Findings, finding => finding.File == Data && finding.Offset <= page * Page.Bytes && finding.Offset >= (page - 2) * Page.Bytes);
            using (var recovery = StoreRecovery.Begin(disk, StoreBench.DirectoryPath))
            {
                Assert.Null(recovery.WhyNot);
                recovery.Run();
            }
            using var bench = new StoreBench(disk);
            bench.Open();
            var keys = bench.ReadAllKeys();
            Assert.All(keys, entry => Assert.Equal(_state[entry.Key], entry.Value));
            Assert.All(_state.Keys.Except(keys.Keys), key => Assert.True(
                report.Findings.Any(finding => Names(finding.Lost, key)), $"{key} is lost with page {page}, and no finding names it."));
            recovered += keys.Count;
        }
        Assert.True(found > 20, $"Only {found} of {pages} damaged pages were found.");
        Assert.True(recovered > found * KeyCount * 8 / 10, $"Only {recovered} keys were recovered in {found} runs over {KeyCount} keys.");
    }

    [Fact]
    public void NewestCheckpoint_Damaged_IsReplacedByTheOlderOneWithTheJournal()
    {
        using (var sound = StoppedReplica.Open(_bench.Disk, StoreBench.DirectoryPath))
            _bench.Disk.FlipBit(Data, sound.Newest!.Trees[(int)TreeId.Kv].Link.Reference.Number * Page.Bytes + 200);
        using (var recovery = BeginRecovery())
        {
            Assert.Contains(recovery.Plan(), step => step.Contains("older checkpoint", StringComparison.Ordinal));
            recovery.Run();
        }
        _bench.Open();
        Assert.Equal(KeyCount, _bench.ReadAllKeys().Count);
        Assert.StartsWith("b", _bench.Read("key-007"), StringComparison.Ordinal);
    }

    [Fact]
    public void ShardTime_OfACheckpointWithoutRecordsBehindIt_IsRecovered()
    {
        var before = ShardTime();
        using (var recovery = BeginRecovery())
            recovery.Run();
        Assert.NotEqual(0, before);
        Assert.Equal(before, ShardTime());
    }

    /// <summary>Of a large set with a damaged page the other members are recovered, and small sets are whole.</summary>
    [Fact]
    public void Set_WithADamagedPage_KeepsItsOtherMembers()
    {
        var etag = new Etag(1, 1);
        ReplaceData(batch =>
        {
            for (var member = 0; member < 2_000; member++)
                batch.SetAdd("large"u8, StoreBench.Text($"member-{member:d5}"), etag);
            for (var member = 0; member < 20; member++)
                batch.SetAdd("small"u8, StoreBench.Text($"member-{member:d5}"), etag);
        });
        long page;
        using (var sound = StoppedReplica.Open(_bench.Disk, StoreBench.DirectoryPath))
            page = FirstLeafOfASet(sound);
        Assert.Empty(Damage());
        _bench.Disk.FlipBit(Data, (page * Page.Bytes) + 200);
        var damage = Damage();
        Assert.Contains(damage, finding => finding.Offset == page * Page.Bytes && finding.Lost.Contains("\"large\"", StringComparison.Ordinal));
        using (var recovery = BeginRecovery())
            recovery.Run();
        Assert.Empty(Damage());
        _bench.Open();
        var sets = _bench.ReadAllSets();
        Assert.Equal(20, sets["small"].Split(' ').Length);
        Assert.InRange(sets["large"].Split(' ').Length, 1_000, 1_999);
        using var snapshot = _bench.Standalone.OpenSnapshot();
        Assert.True(snapshot.TryGetSet("large"u8, out var set) && set.Etag == etag);
    }

    /// <summary>
    /// Sound pages with a set whose members are not where it says, as a bug or failing memory may produce; with one whose only member is empty, which was taken
    /// for sound and then ended the whole recovery; and with one that has neither members nor a tree, which was lost without a word.
    /// </summary>
    [Theory]
    [InlineData(9, 29)]
    [InlineData(0, 26)]
    [InlineData(0, 24)]
    public void Set_ThatCannotBeDecodedInASoundPage_IsNamedAndLeftOut(ushort end, ushort bytes)
    {
        ReplaceData(batch =>
        {
            batch.SetAdd("bad"u8, "one"u8, new Etag(1, 1));
            batch.SetAdd("good"u8, "one"u8, new Etag(1, 1));
            // The end of its only member, and, directly before the value of a key as short as this, the length of the value.
            var value = ValueOf(batch, "bad");
            MemoryMarshal.Write(value[SetValue.HeaderBytes..], end);
            Unsafe.WriteUnaligned(ref Unsafe.Subtract(ref value[0], sizeof(ushort)), bytes);
        });
        var damage = Damage();
        Assert.Equal(["sets: the value of the key \"bad\""], damage.Select(finding => finding.Lost));
        using (var recovery = BeginRecovery())
        {
            recovery.Run();
            Assert.Equal(1, recovery.LeftOut);
        }
        _bench.Open();
        Assert.Equal(["good"], _bench.ReadAllSets().Keys);
    }

    // Its members were recovered as if the set before it had them last changed.
    [Fact]
    public void LargeSet_ThatCannotBeDecodedInASoundPage_IsLeftOutWithItsMembers()
    {
        ReplaceData(batch =>
        {
            AddLarge(batch, "bad", new Etag(1, 1));
            AddLarge(batch, "good", new Etag(1, 2));
            // The number of its members.
            ValueOf(batch, "bad")[16..24].Clear();
        });
        Assert.True(StoreCheck.Run(_bench.Disk, StoreBench.DirectoryPath).IsDamaged);
        using (var recovery = StoreRecovery.Begin(_bench.Disk, StoreBench.DirectoryPath))
        {
            recovery.Run();
            Assert.Equal(1, recovery.LeftOut);
        }
        _bench.Open();
        Assert.Equal(["good"], _bench.ReadAllSets().Keys);
    }

    /// <summary>
    /// The engine's own check refused such a tree, and that of the tools passed over it. Nothing of it is lost. Here the last leaf of a tree is replaced by
    /// another tree.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public unsafe void Tree_WithLeavesOnSeveralLevels_IsReportedAndRecoveredAsAWhole(bool isSet)
    {
        const int Each = 1_000;
        ReplaceData(
            (batch, _) =>
            {
                for (var key = 0; key < 2 * Each; key++)
                {
                    var name = StoreBench.Text($"{key:d6}");
                    if (key >= Each)
                        batch.Put(TreeId.Expiry, name, isSet ? [] : new byte[20]);
                    else if (isSet)
                        batch.SetAdd("large"u8, name, new Etag(1, 1));
                    else
                        batch.Put(TreeId.Kv, name, new byte[20]);
                }
            },
            store =>
            {
                fixed (TreeRoot* trees = store.Roots.Published.Trees)
                {
                    var entry = store.Space.Locate(trees[(int)TreeId.Sets].Link.Reference);
                    var top = store.Space.Locate(isSet ? TreePage.Reference(entry, 0)->Reference : trees[(int)TreeId.Kv].Link.Reference);
                    var last = TreePage.Child(top, Page.Count(top) - 1);
                    var more = (ulong)(Each - Page.Count(store.Space.Locate(last->Reference)));
                    *last = trees[(int)TreeId.Expiry].Link;
                    trees[(int)TreeId.Expiry] = default;
                    fixed (byte* set = isSet ? TreePage.Value(store.Space, entry, 0) : default)
                        *(isSet ? (ulong*)(set + 16) : &trees[(int)TreeId.Kv].Count) += more;
                }
            });
        var finding = Assert.Single(Damage());
        Assert.Contains("level", finding.What, StringComparison.Ordinal);
        using (var recovery = BeginRecovery())
            recovery.Run();
        Assert.Empty(Damage());
        _bench.Open();
        using var snapshot = _bench.Standalone.OpenSnapshot();
        Assert.Equal(isSet ? 1ul : 0, snapshot.Count(TreeId.Sets));
        for (var key = 0; key < 2 * Each; key += 10)
        {
            var name = StoreBench.Text($"{key:d6}");
            var isThere = isSet ? snapshot.TryGetSet("large"u8, out var set) && set.Contains(name) : snapshot.TryGet(TreeId.Kv, name, out _);
            Assert.True(isThere || IsInReplaced(key), $"Key {key} is lost.");
        }

        // The last leaf itself is gone.
        static bool IsInReplaced(int key) => key is >= Each / 2 and < Each;
    }

    /// <summary>
    /// A branch of a sound page that records another number of keys, as a bug or failing memory may produce, or that hides what leaves refer to: it is reported
    /// where it is, and the engine's own check finds it, too. No key is lost.
    /// </summary>
    [Theory]
    [InlineData(1ul)]
    [InlineData(1ul << 63)]
    public unsafe void Branch_WithAWrongSummary_IsReportedAndRecoveredAsAWhole(ulong change)
    {
        MetaPage meta;
        using (var replica = StoppedReplica.Open(_bench.Disk, StoreBench.DirectoryPath))
            meta = replica.Newest!;
        var place = meta.Trees[(int)TreeId.Kv].Link.Reference;
        var file = _bench.Disk.ReadAll(Data);
        fixed (byte* bytes = file)
        {
            var top = bytes + place.Value;
            Assert.Equal(PageType.Branch, Page.Type(top));
            TreePage.Subtree(top, 1)->Summary = new SubtreeSummary(TreePage.Subtree(top, 1)->Summary.Value ^ change);
            meta.Trees[(int)TreeId.Kv].Link.Checksum = Page.Checksum(top) = Page.ComputeChecksum(top, Page.Bytes);
        }
        meta.Encode(file.AsSpan((int)meta.PageNumber * Page.Bytes));
        _bench.Disk.WriteAll(Data, file);
        var damage = Assert.Single(Damage());
        Assert.Equal((Data, (long)place.Value), (damage.File, damage.Offset));
        Assert.Contains("below child 1", damage.What, StringComparison.Ordinal);
        using (var disk = _bench.Disk.Copy())
        using (var pages = PageStore.Open(disk, Data, new PageStoreOptions()))
            Assert.Contains("its parent records", Assert.Throws<CorruptStoreException>(pages.Verify).Message, StringComparison.Ordinal);
        using (var recovery = BeginRecovery())
            recovery.Run();
        Assert.Empty(Damage());
        _bench.Open();
        Assert.Equal(_state, _bench.ReadAllKeys());
    }

    [Fact]
    public unsafe void LargeSet_WhoseMembersReferToOtherPages_IsReportedWithThePage()
    {
        ReplaceData((batch, space) =>
        {
            AddLarge(batch, "large", new Etag(1, 1));
            fixed (byte* value = ValueOf(batch, "large"))
                Page.LeafHasReferences(space.Locate(TreePage.CellTree(value - TreePage.OverflowCellHeader).Link.Reference)) = true;
        });
        long page;
        using (var replica = StoppedReplica.Open(_bench.Disk, StoreBench.DirectoryPath))
            page = TreePage.Reference(replica.Space!.Locate(replica.Newest!.Trees[(int)TreeId.Sets].Link.Reference), 0)->Reference.Number;
        var damage = Assert.Single(StoreCheck.Run(_bench.Disk, StoreBench.DirectoryPath).Findings, static finding => finding.IsDamage);
        Assert.Equal(page * Page.Bytes, damage.Offset);
        Assert.Contains($"page {page} ", damage.What, StringComparison.Ordinal);
        Assert.Contains("\"large\"", damage.Lost, StringComparison.Ordinal);
    }

    /// <summary>The value was copied, and then the check of the result failed: nothing of the replica could be recovered.</summary>
    [Fact]
    public void Value_ThatCannotBeDecodedInASoundPage_IsNamedAndLeftOut()
    {
        ReplaceData(batch =>
        {
            batch.Put(TreeId.Kv, StoreBench.Text("key-001"), [0]);
            batch.Put(TreeId.Kv, StoreBench.Text("key-002"), [0, 0, 1, (byte)'v']);
            batch.Put(TreeId.Sessions, [9], [9]);
        });
        var damage = Damage();
        Assert.Equal(["kv: the value of the key \"key-001\"", "an entry of the sessions"], damage.Select(finding => finding.Lost));
        using (var recovery = BeginRecovery())
        {
            Assert.Contains(recovery.Plan(), step => step.StartsWith("Leave out all sessions", StringComparison.Ordinal));
            recovery.Run();
            Assert.Equal(1, recovery.LeftOut);
        }
        Assert.Empty(Damage());
        _bench.Open();
        Assert.Equal(["key-002"], _bench.ReadAllKeys().Keys);
    }

    /// <summary>
    /// A checksum only proves that a page is what was written: a bug, failing memory or another replica may have compressed nothing that can be read again.
    /// </summary>
    [Fact]
    public void Value_WhoseCompressedBytesGiveNone_IsNamedAndLeftOut()
    {
        ReplaceData(batch =>
        {
            var compressed = new byte[60];
            compressed.AsSpan().Fill(0xFF);
            BitConverter.GetBytes(600).CopyTo(compressed, 0);
            (compressed[4], compressed[5]) = (3, 0);
            batch.Put(TreeId.Kv, StoreBench.Text("key-001"), compressed);
            MarkAsCompressed(batch, "key-001");
            batch.Put(TreeId.Kv, StoreBench.Text("key-002"), [0, 0, 1, (byte)'v']);
        });
        using (var disk = _bench.Disk.Copy())
        using (var pages = PageStore.Open(disk, Data, new PageStoreOptions()))
            Assert.Contains("do not give it", Assert.Throws<CorruptStoreException>(pages.Verify).Message, StringComparison.Ordinal);
        var damage = Assert.Single(Damage());
        Assert.Equal("kv: the value of the key \"key-001\"", damage.Lost);
        Assert.Contains("a value of 600 bytes whose compressed bytes do not give it", damage.What, StringComparison.Ordinal);
        using (var recovery = BeginRecovery())
            recovery.Run();
        Assert.Empty(Damage());
        _bench.Open();
        Assert.Equal(["key-002"], _bench.ReadAllKeys().Keys);
    }

    [Fact]
    public void Plan_OfAQuarantinedReplica_SaysThatItIsTrustedAgain()
    {
        QuarantineMark.Write(_bench.Disk, StoreBench.DirectoryPath, "its digest differs");
        using var recovery = BeginRecovery();
        Assert.Contains(recovery.Plan(), step => step.StartsWith("Leave out the quarantine mark", StringComparison.Ordinal)
            && step.Contains("its digest differs", StringComparison.Ordinal));
    }

    [Fact]
    public void Dump_NamesStructureRecordsAndKeys()
    {
        using var output = new StringWriter();
        using (var replica = StoppedReplica.Open(_bench.Disk, StoreBench.DirectoryPath))
            new StoreDump(replica, output).Write(new DumpRequest(StoreBench.Text("key-00"), 3, 5));
        var lines = output.ToString().Split('\n');
        Assert.Equal(2, lines.Count(line => line.StartsWith("meta ", StringComparison.Ordinal)));
        Assert.Contains(lines, line => line.StartsWith($"tree     kv: {KeyCount} keys", StringComparison.Ordinal));
        Assert.Contains(lines, line => line.StartsWith("segment ", StringComparison.Ordinal));
        Assert.InRange(lines.Count(line => line.StartsWith("record ", StringComparison.Ordinal)), 1, 5);
        Assert.Equal(
            ["\"key-000\"", "\"key-001\"", "\"key-002\""], lines.Where(line => line.StartsWith("key ", StringComparison.Ordinal)).Select(line => line[9..18]));
    }

    /// <summary>The keys of sets were not listed, so that nobody saw which there were.</summary>
    [Theory]
    [InlineData("", 2, "\"large\": 500 members in a tree, \"small\": 3 members, ")]
    [InlineData("", 1, "\"large\": 500 members in a tree, ")]
    [InlineData("sm", 9, "\"small\": 3 members, ")]
    [InlineData("none", 9, "")]
    public void Dump_ListsSetsWithTheirNumberOfMembers(string prefix, int limit, string expected)
    {
        ReplaceData(batch =>
        {
            for (var member = 0; member < 500; member++)
                batch.SetAdd("large"u8, StoreBench.Text($"member-{member:d5}"), new Etag(1, 1));
            for (var member = 0; member < 3; member++)
                batch.SetAdd("small"u8, StoreBench.Text($"member-{member:d5}"), new Etag(1, 1));
        });
        using var output = new StringWriter();
        using (var replica = StoppedReplica.Open(_bench.Disk, StoreBench.DirectoryPath))
            new StoreDump(replica, output).Write(new DumpRequest(StoreBench.Text(prefix), limit, 0));
        const string Change = "changed by (epoch 1, change 1)";
        var lines = output.ToString().Split('\n').Where(line => line.StartsWith("set ", StringComparison.Ordinal)).ToArray();
        Assert.All(lines, line => Assert.EndsWith(Change, line, StringComparison.Ordinal));
        Assert.Equal(expected, string.Concat(lines.Select(line => line["set      ".Length..^Change.Length])));
    }

    [Fact]
    public void Open_WhatIsNoReplica_IsATypedErrorThatSaysWhy()
    {
        Assert.Contains("does not exist", Assert.Throws<NotAReplicaException>(() => StoreCheck.Run(_bench.Disk, "/none")).Message, StringComparison.Ordinal);
        Assert.Contains("it is a file", Assert.Throws<NotAReplicaException>(() => StoreCheck.Run(_bench.Disk, Data)).Message, StringComparison.Ordinal);
        Assert.Contains(
            "neither", Assert.Throws<NotAReplicaException>(() => StoreCheck.Run(_bench.Disk, StoreBench.DirectoryPath + "/state-00000001")).Message,
            StringComparison.Ordinal);
        Assert.Throws<NotAReplicaException>(() => StoreRecovery.Begin(_bench.Disk, "/none"));
    }

    [Fact]
    public void Recover_NoRoom_ChangesNothing()
    {
        _bench.Disk.FlipBit(Data, (2 * Page.Bytes) + 100);
        _bench.Disk.WriteAll(StoreBench.DirectoryPath + "/control", new byte[8192]);
        using var recovery = StoreRecovery.Begin(_bench.Disk, StoreBench.DirectoryPath, clusterHash: 0);
        _bench.Disk.CapacityBytes = _bench.Disk.UsedBytes + 10_000;
        var before = StoreBench.FilesOf(_bench.Disk, StoreBench.DirectoryPath);
        Assert.True(Assert.Throws<StorageIoException>(recovery.Run).IsDiskFull);
        Assert.Equal(before, StoreBench.FilesOf(_bench.Disk, StoreBench.DirectoryPath));
        Assert.False(_bench.Disk.DirectoryExists(StoreBench.DirectoryPath + StoreRecovery.NewSuffix));
    }

    /// <summary>Power is lost at each call of a recovery. One of the two directories is in place, or both are under the names that were told.</summary>
    [Fact]
    public void Recover_PowerLostAtAnyCall_LosesNeitherDirectory()
    {
        _bench.Disk.WriteAll(StoreBench.DirectoryPath + "/control", new byte[8192]);
        for (var call = 1; ; call++)
        {
            using var disk = _bench.Disk.Copy();
            try
            {
                using var recovery = StoreRecovery.Begin(disk, StoreBench.DirectoryPath, clusterHash: 0);
                disk.CrashAtCall = disk.Calls + call;
                recovery.Run();
            }
            catch (SimulatedCrashException)
            {
                // As intended.
            }
            var isDone = !disk.IsOff;
            disk.Restart((UnsyncedWrites)(call % 4), call);
            var kept = disk.DirectoryExists(StoreBench.DirectoryPath + StoreRecovery.OldSuffix);
            Assert.True(kept || disk.DirectoryExists(StoreBench.DirectoryPath), $"The old directory is lost after call {call}.");
            if (kept && disk.DirectoryExists(StoreBench.DirectoryPath))
            {
                using var bench = new StoreBench(disk.Copy());
                bench.Open();
                Assert.Equal(KeyCount, bench.ReadAllKeys().Count);
            }
            if (isDone)
            {
                Assert.True(kept && call > 10, $"The recovery made only {call} calls.");
                return;
            }
        }
    }

    private static unsafe long FirstLeafOfASet(StoppedReplica replica)
    {
        var leaf = replica.Space!.Locate(replica.Newest!.Trees[(int)TreeId.Sets].Link.Reference);
        var root = replica.Space.Locate(TreePage.Reference(leaf, 0)->Reference);
        return TreePage.Child(root, 0)->Reference.Number;
    }

    // Whether the text of a finding names the key, by itself or in a range.
    private static bool Names(string lost, string key) =>
        LostKeys().Match(lost) is { Success: true } named
        && (!named.Groups["one"].Success || named.Groups["one"].Value == key)
        && (!named.Groups["from"].Success || string.CompareOrdinal(named.Groups["from"].Value, key) <= 0)
        && (!named.Groups["before"].Success || string.CompareOrdinal(named.Groups["before"].Value, key) > 0);

    [GeneratedRegex("""^kv: (all keys|the value of the key "(?<one>[^"]*)"|the keys( from "(?<from>[^"]*)"( on| to)?)?( before "(?<before>[^"]*)")?)$""")]
    private static partial Regex LostKeys();

    private Finding[] Damage() => [.. StoreCheck.Run(_bench.Disk, StoreBench.DirectoryPath).Findings.Where(finding => finding.IsDamage)];

    private StoreRecovery BeginRecovery() => StoreRecovery.Begin(_bench.Disk, StoreBench.DirectoryPath);

    private long ShardTime()
    {
        using var replica = StoppedReplica.Open(_bench.Disk, StoreBench.DirectoryPath);
        return replica.Newest!.ShardTime;
    }

    // A set whose members take a page of their own.
    private static void AddLarge(WriteBatch batch, string key, Etag etag)
    {
        for (var member = 0; member < 12; member++)
            batch.SetAdd(StoreBench.Text(key), StoreBench.Text($"{member:d5}-{new string('m', 200)}"), etag);
    }

    // The stored value of a set, in place, to write into a page that will be sound.
    private static Span<byte> ValueOf(WriteBatch batch, string set)
    {
        Assert.True(batch.TryGet(TreeId.Sets, StoreBench.Text(set), out var value));
        return MemoryMarshal.CreateSpan(ref MemoryMarshal.GetReference(value), value.Length);
    }

    // The value of a key of at most eight bytes has its length in the two bytes before it.
    private static unsafe void MarkAsCompressed(WriteBatch batch, string key)
    {
        Assert.True(batch.TryGet(TreeId.Kv, StoreBench.Text(key), out var value));
        fixed (byte* place = value)
            *(ushort*)(place - 2) = (ushort)TreePage.CompressedInline(value.Length);
    }

    private void ReplaceData(Action<WriteBatch> fill) => ReplaceData((batch, _) => fill(batch));

    // Writes another data file for the same checkpoint, all of whose pages are sound.
    private void ReplaceData(Action<WriteBatch, PageSpace> fill, Action<PageStore>? change = null)
    {
        CheckpointPosition covers;
        byte[] identity;
        using (var replica = StoppedReplica.Open(_bench.Disk, StoreBench.DirectoryPath))
            (covers, identity) = (replica.Newest!.CheckpointPosition, StoreDirectory.IdentityOf(replica.Control!));
        _bench.Disk.Delete(Data);
        using var pages = PageStore.Create(_bench.Disk, Data, new PageStoreOptions(), identity);
        var batch = pages.Begin();
        fill(batch, pages.Space);
        pages.Roots.Seal(batch, covers.Etag);
        pages.Roots.Publish(covers.Etag);
        change?.Invoke(pages);
        var checkpoint = pages.BeginCheckpoint(_ => covers, covers.Etag, repeats: true)!;
        checkpoint.Write();
        pages.FinishCheckpoint(checkpoint);
    }

    private void Write(int index, char fill) => Assert.Equal(WriteOutcome.Applied, _bench.Write(request =>
        request.Put(StoreBench.Text($"key-{index:000}"), StoreBench.Text(new string(fill, index % 40 == 0 ? 20_000 : 400)))).Outcome);
}
