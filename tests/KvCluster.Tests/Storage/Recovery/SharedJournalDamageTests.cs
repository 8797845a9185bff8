using KvCluster.Disk;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Recovery;
using KvCluster.Storage.Shared;
using KvCluster.Tests.Storage.Journal;

namespace KvCluster.Tests.Storage.Recovery;

/// <summary>
/// A shared journal that a power loss left, with damage. A block at the end that is torn was never reported, and is missed by nobody. One before it was
/// durable: the replicas with records in it, and no others, are told that they have lost something, unless they have it all the same.
/// </summary>
public sealed class SharedJournalDamageTests : IDisposable
{
    private const string Sound = "sound";
    private const string EndsEarly = "journal ends before acknowledged";
    private const string Damaged = "durable record damaged";
    private const string File = $"{SharedBench.Root}/shared/0";

    /// <summary>The members of the last blocks. All stores have records in earlier ones.</summary>
    private static readonly int[][] Members = [[0, 1, 2], [0, 1], [1, 2], [1, 2]];

    private static readonly Dictionary<string, (Action<SharedJournalDamageTests> Damage, string[] Rows)> Damages = new()
    {
        // The second one of the last blocks is damaged. Store 0 has its last record in it, store 1 has later ones, and store 2 has nothing there.
        ["nothing"] = (static _ => { }, [Sound, Sound, Sound]),
        ["header"] = (static test => test.Flip(1, 20), [EndsEarly, Damaged, Sound]),
        // The next block repeats it.
        ["directory"] = (static test => test.Flip(1, SharedBlock.HeaderBytes + 20), [Sound, Sound, Sound]),
        ["first body"] = (static test => test.Flip(1, test.Block(1).ContentOffset + 100), [EndsEarly, Sound, Sound]),
        ["second body"] = (static test => test.Flip(1, test.Block(1).RepeatedOffset - 100), [Sound, Damaged, Sound]),
        ["repeated directories"] = (static test => test.Flip(1, test.Block(1).RepeatedOffset + 5), [Sound, Sound, Sound]),
        ["header, and the next one's"] = (Each(static test => test.Flip(1, 20), static test => test.Flip(2, 20)), [EndsEarly, Damaged, Damaged]),
        ["directory, and where it is repeated"] = (
            Each(static test => test.Flip(1, SharedBlock.HeaderBytes + 20), static test => test.Flip(2, test.Block(2).RepeatedOffset + 20)),
            [EndsEarly, Damaged, EndsEarly]),
        ["unreadable sector of a body"] = (static test => test.MakeUnreadable(1, test.Block(1).ContentOffset + 600), [EndsEarly, Damaged, EndsEarly]),
        ["unreadable sector of the header"] = (static test => test.MakeUnreadable(1, 0), [EndsEarly, Damaged, EndsEarly]),
        // Another file says to which journal the blocks belong.
        ["the file's header"] = (static test => test._disk.FlipBit(File, 9), [Sound, Sound, Sound]),
        ["all files' headers"] = (
            static test => SharedBench.FilesOf(test._disk).ToList().ForEach(path => test._disk.FlipBit(path, 9)), [EndsEarly, EndsEarly, EndsEarly]),
    };

    private readonly SimulatedDisk _disk = new();

    /// <summary>The last record of each store before each of the last blocks, and after them.</summary>
    private readonly Etag[][] _last = new Etag[Members.Length + 1][];
    private readonly List<SharedBlock> _blocks;
    private readonly List<int> _offsets;

    public SharedJournalDamageTests()
    {
        // The bench would dispose of the disk.
        var bench = new SharedBench(_disk, lanes: 1, options: Store.StoreBench.SmallOptions with { SegmentBytesMin = 64 << 10 }).Open();
        bench.WriteTogether(100, 0, 1, 2);
        for (var block = 0; block < Members.Length; block++)
        {
            _last[block] = Lasts(bench);
            bench.WriteTogether(3_000, Members[block]);
        }
        _last[^1] = Lasts(bench);
        bench.Die();
        _disk.Restart(UnsyncedWrites.Dropped);
        var found = SharedBench.BlocksOf(_disk)[^Members.Length..];
        Assert.All(found, static block => Assert.Equal(File, block.Path));
        (_blocks, _offsets) = ([.. found.Select(static block => block.Block)], [.. found.Select(static block => block.Offset)]);
    }

    public static TheoryData<string> DamageNames => new(Damages.Keys);

    public void Dispose() => _disk.Dispose();

    [Theory]
    [MemberData(nameof(DamageNames))]
    public void Settle_DamagedBlockThatWasDurable_TellsThoseWhoseRecordsAreLost(string name)
    {
        Damages[name].Damage(this);
        var replay = SharedBench.Settle(_disk);
        Assert.False(SharedJournalReplay.IsLeft(_disk, SharedBench.Root));
        var rows = Damages[name].Rows;
        for (var store = 0; store < rows.Length; store++)
        {
            var (row, last) = SharedBench.RecoveryOf(_disk, store);
            Assert.True(row != Sound || _last[^1][store] == last, $"Store {store} is called sound with the last record {last}.");
            Assert.Equal($"{store} {rows[store]}", $"{store} {row}");
            Assert.True(row == Sound || replay.Losses.Contains($"shards/{store + 1}"), $"Store {store} is not named.");
        }
        // Nothing of that depends on what is removed by now.
        _disk.Restart(UnsyncedWrites.Dropped);
        Assert.Equal(rows, Enumerable.Range(0, rows.Length).Select(store => SharedBench.RecoveryOf(_disk, store).Row));
    }

    /// <summary>The segments had been synced, or only the process had died.</summary>
    [Theory]
    [InlineData("header")]
    [InlineData("directory")]
    [InlineData("first body")]
    [InlineData("second body")]
    public void Settle_DamagedBlockWhoseRecordsAreInTheSegments_LosesNothing(string name)
    {
        // As they are when nothing is damaged.
        using var whole = _disk.Copy();
        SharedBench.Settle(whole);
        foreach (var path in Store.StoreBench.PathsOf(whole, $"{SharedBench.Root}/shards"))
        {
            if (path.EndsWith(".journal", StringComparison.Ordinal))
                _disk.WriteAll(path, whole.ReadAll(path));
        }
        Damages[name].Damage(this);
        SharedBench.Settle(_disk);
        for (var store = 0; store < 3; store++)
            Assert.Equal((Sound, _last[^1][store]), SharedBench.RecoveryOf(_disk, store));
    }

    /// <summary>Settling is killed at any call and repeated. The loss is not forgotten on the way.</summary>
    [Theory]
    [InlineData("header")]
    [InlineData("directory, and where it is repeated")]
    [InlineData("unreadable sector of a body")]
    public void Settle_OfDamageKilledAtAnyCall_IsDecidedAsIfItHadNotBeen(string name)
    {
        Damages[name].Damage(this);
        _disk.RemovesNameByName = true;
        for (var call = 1; ; call++)
        {
            using var disk = _disk.Copy();
            // A copy has no sectors that cannot be read.
            if (name.StartsWith("unreadable", StringComparison.Ordinal))
                disk.MakeUnreadable(File, _offsets[1] + _blocks[1].ContentOffset + 600, 1);
            disk.CrashAtCall = call;
            try
            {
                SharedBench.Settle(disk);
                Assert.True(call > 10, $"It made only {call} calls.");
                break;
            }
            catch (SimulatedCrashException)
            {
                disk.Restart((UnsyncedWrites)(call % 4), call);
            }
            SharedBench.Settle(disk);
            Assert.Equal(Damages[name].Rows, Enumerable.Range(0, 3).Select(store => SharedBench.RecoveryOf(disk, store).Row));
        }
    }

    /// <summary>
    /// A call fails, also because the disk is full. The start fails with it, and the next one finds everything, or the replica whose segment was refused is
    /// told that it has lost something.
    /// </summary>
    [Theory]
    [InlineData(nameof(DiskFault.Error))]
    [InlineData(nameof(DiskFault.NoRoom))]
    [InlineData(nameof(DiskFault.NoRoomAfterwards))]
    [InlineData(nameof(DiskFault.SyncLosesData))]
    public void Settle_FailingAtAnyCall_IsRepeatedByTheNextStart(string fault)
    {
        _disk.RemovesNameByName = true;
        var isDone = false;
        for (var failing = 1; !isDone; failing++)
        {
            using var disk = _disk.Copy();
            var calls = 0;
            disk.Fault = call => call.Changes && ++calls == failing ? Enum.Parse<DiskFault>(fault) : DiskFault.None;
            SortedSet<string> lost = [];
            try
            {
                lost = SharedBench.Settle(disk).Losses;
                isDone = calls < failing;
            }
            catch (StorageIoException)
            {
                // The process ends with it.
            }
            disk.Fault = null;
            Assert.Empty(disk.OpenPaths);
            if (failing % 2 == 0)
                disk.Restart(UnsyncedWrites.Dropped);
            Assert.Empty(SharedBench.Settle(disk).Losses);
            disk.Restart(UnsyncedWrites.Dropped);
            Assert.InRange(lost.Count, 0, isDone ? 0 : 1);
            for (var store = 0; store < 3; store++)
            {
                var found = SharedBench.RecoveryOf(disk, store);
                if (found.Row == Sound || !lost.Contains($"shards/{store + 1}"))
                    Assert.Equal($"call {failing}: {(Sound, _last[^1][store])}", $"call {failing}: {found}");
            }
            Assert.True(!isDone || failing > 10, $"There were only {calls} calls.");
        }
    }

    /// <summary>The disk takes nothing at one place any more. The node starts, and one of its replicas recovers from its peers.</summary>
    [Theory]
    [InlineData("Write")]
    [InlineData("Sync")]
    public void Settle_SegmentThatIsRefusedForGood_LosesOnlyItsReplica(string operation)
    {
        var segment = $"{SharedBench.Root}/{System.Text.Encoding.UTF8.GetString(EntriesOf(1)[0].Name.Span)}";
        _disk.Fault = call => call.Operation == operation && call.Path == segment ? DiskFault.Error : DiskFault.None;
        Assert.Equal(["shards/1"], SharedBench.Settle(_disk).Losses);
        _disk.Fault = null;
        _disk.Restart(UnsyncedWrites.Dropped);
        Assert.Equal([EndsEarly, Sound, Sound], Enumerable.Range(0, 3).Select(store => SharedBench.RecoveryOf(_disk, store).Row));
    }

    /// <summary>Only the first bytes of the last block have arrived.</summary>
    [Fact]
    public void Settle_LastBlockCutAnywhere_OpensEverythingSound()
    {
        var (block, offset, whole) = (_blocks[^1], _offsets[^1], _disk.ReadAll(File));
        var sectors = Enumerable.Range(0, block.Bytes / 512).Select(static sector => sector * 512);
        foreach (var cut in sectors.Concat(Enumerable.Range(0, block.ContentOffset)).Append(block.Bytes).Distinct())
        {
            var content = (byte[])whole.Clone();
            content.AsSpan(offset + cut, block.Bytes - cut).Clear();
            CheckTorn(content, $"the last block ends after {cut} of {block.Bytes} bytes");
        }
    }

    [Fact]
    public void Settle_LastBlockOfAnyOfItsSectors_OpensEverythingSound() => Seeds.Run(60, random =>
    {
        var (block, offset, content) = (_blocks[^1], _offsets[^1], _disk.ReadAll(File));
        for (var at = 0; at < block.Bytes; at += 512)
        {
            if (random.Next(4) == 0)
                content.AsSpan(offset + at, 512).Clear();
        }
        CheckTorn(content, "the last block has only some of its sectors");
    });

    /// <summary>
    /// A value has the bytes of a block, at a place where a recovery looks for one because the header before it is missing. Only those of this shared journal
    /// count, of whose number no client knows anything.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public void Settle_BytesOfAValueThatLookLikeABlock_CountOnlyIfTheyAreOfThisJournal(bool isOfThisJournal)
    {
        var (offset, whole) = (_offsets[^1], _disk.ReadAll(File));
        var entry = EntriesOf(1)[0];
        var found = Compose(_blocks[1].Journal + (isOfThisJournal ? 0u : 1u), _blocks[^1].Number + 7, (entry, new byte[20]));
        whole.AsSpan(offset, SharedBlock.HeaderBytes).Clear();
        found.CopyTo(whole, offset + AlignedBuffer.Alignment);
        _disk.WriteAll(File, whole);
        var replay = SharedBench.Settle(_disk);
        Assert.Equal(isOfThisJournal, replay.Losses.Count > 0);
        if (!isOfThisJournal)
            Assert.All(Enumerable.Range(0, 3), store => Assert.Equal(Sound, SharedBench.RecoveryOf(_disk, store).Row));
    }

    /// <summary>Records for another replica's segment, or for another use of the file, at a place that the segment has.</summary>
    [Theory]
    [InlineData("another replica", false)]
    [InlineData("another incarnation", false)]
    [InlineData("none", true)]
    public void Settle_RecordsOfAnotherOwner_AreNotPutIntoTheSegment(string other, bool isPut)
    {
        var entry = EntriesOf(^1)[0];
        var content = ContentOf(^1);
        var foreign = entry with
        {
            Replica = new(entry.Replica.Value + (other == "another replica" ? 9u : 0u)),
            Incarnation = entry.Incarnation + (other == "another incarnation" ? 1u : 0u),
            Offset = entry.Offset + (8 * AlignedBuffer.Alignment),
        };
        Append((foreign, content));
        SharedBench.Settle(_disk);
        var segment = _disk.ReadAll($"{SharedBench.Root}/{System.Text.Encoding.UTF8.GetString(entry.Name.Span)}");
        Assert.Equal(isPut, segment.AsSpan((int)foreign.Offset, content.Length).SequenceEqual(content));
        Assert.True(segment.AsSpan((int)entry.Offset, content.Length).SequenceEqual(content));
    }

    /// <summary>Replicas may have the same incarnation by chance. What is known of a segment for one of them is not used for the other.</summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public void Settle_RecordsOfAnotherReplicaWithTheSameIncarnation_DoNotDecideAboutTheSegmentsOwn(bool isForeignFirst)
    {
        var (entry, content) = (EntriesOf(^1)[0], ContentOf(^1));
        var foreign = entry with { Replica = new(entry.Replica.Value + 9), Offset = entry.Offset + (8 * AlignedBuffer.Alignment) };
        var own = entry with { Offset = entry.Offset + (4 * AlignedBuffer.Alignment) };
        if (isForeignFirst)
        {
            // In the place of the first block, before all that are of the segment's own.
            var first = SharedBench.BlocksOf(_disk)[0];
            var bytes = _disk.ReadAll(File);
            bytes.AsSpan(SharedFile.HeaderBytes).Clear();
            Compose(first.Block.Journal, first.Block.Number, (foreign, content), (own, content)).CopyTo(bytes, SharedFile.HeaderBytes);
            _disk.WriteAll(File, bytes);
        }
        else
        {
            Append((own, content), (foreign, content));
        }
        SharedBench.Settle(_disk);
        var segment = _disk.ReadAll($"{SharedBench.Root}/{System.Text.Encoding.UTF8.GetString(entry.Name.Span)}");
        Assert.True(segment.AsSpan((int)own.Offset, content.Length).SequenceEqual(content), "The segment's own records are missing.");
        Assert.False(segment.AsSpan((int)foreign.Offset, content.Length).SequenceEqual(content), "Another replica's records are in the segment.");
    }

    /// <summary>The segment is erased to be used again, or is gone. Nothing of it is missing: what it had is in a checkpoint.</summary>
    [Theory]
    [InlineData("erased")]
    [InlineData("gone")]
    public void Settle_SegmentThatIsNotNeededAnyMore_IsLeftAlone(string state)
    {
        var path = $"{SharedBench.Root}/{System.Text.Encoding.UTF8.GetString(EntriesOf(1)[0].Name.Span)}";
        if (state == "gone")
            _disk.Delete(path);
        else
            _disk.WriteAll(path, new byte[_disk.ReadAll(path).Length]);
        Flip(1, 20);
        var replay = SharedBench.Settle(_disk);
        // Store 0 has no other segment with records of the block.
        Assert.DoesNotContain("shards/1", replay.Losses);
        Assert.Equal(state == "erased", _disk.FileExists(path) && !_disk.ReadAll(path).AsSpan().ContainsAnyExcept((byte)0));
    }

    /// <summary>A data directory may be given with a slash at the end of its path.</summary>
    [Fact]
    public void Settle_PathWithASlashAtItsEnd_PutsEverythingBack()
    {
        var replay = SharedJournalReplay.Settle(_disk, SharedBench.Root + "/", SharedBench.DirectoriesOn(_disk));
        Assert.True(replay.Writes > 0);
        for (var store = 0; store < 3; store++)
            Assert.Equal((Sound, _last[^1][store]), SharedBench.RecoveryOf(_disk, store));
    }

    /// <summary>
    /// Of two blocks on their way the earlier one has not arrived, and in its place is the header of one from an earlier use of the file, which was longer than
    /// both. The later one was durable.
    /// </summary>
    [Fact]
    public void Settle_BlockWithinTheLengthOfAnOldOne_IsPutBack()
    {
        var (entry, content, bytes) = (EntriesOf(^1)[0], ContentOf(^1), _disk.ReadAll(File));
        var (at, own) = (_offsets[^1] + _blocks[^1].Bytes, entry with { Offset = entry.Offset + (4 * AlignedBuffer.Alignment) });
        (default(SharedBlock) with { Journal = _blocks[^1].Journal, Number = 1, ContentBytes = 100_000 }).WriteTo(bytes.AsSpan(at));
        Compose(_blocks[^1].Journal, _blocks[^1].Number + 2, (own, content)).CopyTo(bytes, at + AlignedBuffer.Alignment);
        // It was handed to the disk when the one before it was not durable.
        Assert.True(SharedBlock.TryRead(bytes.AsSpan(at + AlignedBuffer.Alignment), File, out var later));
        (later with { DurableBefore = later.Number - 1 }).WriteTo(bytes.AsSpan(at + AlignedBuffer.Alignment));
        _disk.WriteAll(File, bytes);
        SharedBench.Settle(_disk);
        var segment = _disk.ReadAll($"{SharedBench.Root}/{System.Text.Encoding.UTF8.GetString(entry.Name.Span)}");
        Assert.True(segment.AsSpan((int)own.Offset, content.Length).SequenceEqual(content), "The later block was passed over.");
    }

    private static Action<SharedJournalDamageTests> Each(params Action<SharedJournalDamageTests>[] damages) => test =>
    {
        foreach (var damage in damages)
            damage(test);
    };

    private static Etag[] Lasts(SharedBench bench) => [.. bench.All.Select(static store => store.Store.Log.Last.Etag)];

    /// <summary>A block that is whole, whose predecessors were durable.</summary>
    private static byte[] Compose(ulong journal, ulong number, params (SharedEntry Entry, byte[] Content)[] writes)
    {
        var directory = new List<byte>();
        foreach (var (entry, content) in writes)
        {
            var bytes = new byte[SharedBlock.EntryBytesOf(entry)];
            SharedBlock.WriteEntry(bytes, entry with { Bytes = content.Length, Checksum = Crc32C.Of(content) });
            directory.AddRange(bytes);
        }
        var records = writes.SelectMany(static write => write.Content).ToArray();
        var block = new SharedBlock(journal, number, number, 1, directory.Count, records.Length, 0, Crc32C.Of(directory.ToArray()), Crc32C.Of([]));
        var whole = new byte[block.Bytes];
        block.WriteTo(whole);
        directory.CopyTo(whole, SharedBlock.HeaderBytes);
        records.CopyTo(whole, block.ContentOffset);
        return whole;
    }

    private SharedBlock Block(Index block) => _blocks[block];

    private void Flip(int block, int offset) => _disk.FlipBit(File, _offsets[block] + offset);

    private void MakeUnreadable(int block, int offset) => _disk.MakeUnreadable(File, _offsets[block] + offset, 1);

    private List<SharedEntry> EntriesOf(Index block) =>
        SharedBlock.ReadDirectory(_disk.ReadAll(File).AsMemory(_offsets[block] + SharedBlock.HeaderBytes, _blocks[block].DirectoryBytes))!;

    /// <summary>The first records of a block.</summary>
    private byte[] ContentOf(Index block) => _disk.ReadAll(File).AsSpan(_offsets[block] + _blocks[block].ContentOffset, EntriesOf(block)[0].Bytes).ToArray();

    /// <summary>Adds a block behind the last one.</summary>
    private void Append(params (SharedEntry Entry, byte[] Content)[] writes)
    {
        var bytes = _disk.ReadAll(File);
        Compose(_blocks[^1].Journal, _blocks[^1].Number + 1, writes).CopyTo(bytes, _offsets[^1] + _blocks[^1].Bytes);
        _disk.WriteAll(File, bytes);
    }

    /// <summary>Everything up to the last block is there, and of that block the records that are whole.</summary>
    private void CheckTorn(byte[] content, string story)
    {
        using var disk = _disk.Copy();
        disk.WriteAll(File, content);
        var replay = SharedBench.Settle(disk);
        Assert.True(replay.Losses.Count == 0, $"{story}: {string.Join(' ', replay.Losses)} have lost something.");
        var (block, bytes) = (_blocks[^1], content.AsMemory(_offsets[^1]));
        var isHeader = SharedBlock.TryRead(bytes.Span, File, out var found) && found == block
            && Crc32C.Of(bytes.Span.Slice(SharedBlock.HeaderBytes, block.DirectoryBytes)) == block.DirectoryChecksum;
        var at = block.ContentOffset;
        foreach (var entry in EntriesOf(^1))
        {
            var store = (int)entry.Replica.Value - 1;
            var isThere = isHeader && Crc32C.Of(bytes.Span.Slice(at, entry.Bytes)) == entry.Checksum;
            Assert.Equal($"{story}: {store} {(Sound, _last[isThere ? ^1 : ^2][store])}", $"{story}: {store} {SharedBench.RecoveryOf(disk, store)}");
            at += entry.Bytes;
        }
        Assert.Equal((Sound, _last[^1][0]), SharedBench.RecoveryOf(disk, 0));
    }
}
