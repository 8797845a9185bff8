using System.Globalization;
using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>
/// Power is lost with several journal writes in flight, none of which is answered. Whatever part of each is on the disk, the store opens with what was
/// answered before and with the longest prefix of whole records, and goes on behind it.
/// </summary>
public sealed class SubsetsInFlightTests : IDisposable
{
    private const int BlockBytes = 4096;
    private const int SectorBytes = 512;
    private StoreOptions _options = StoreBench.SmallOptions with { SegmentBytesMin = 128 << 10 };
    private StoreBench _bench = null!;
    private string _segment = "";

    /// <summary>The segment before and after the writes.</summary>
    private byte[] _before = [];
    private byte[] _after = [];

    /// <summary>Where each write begins.</summary>
    private int[] _begins = [];

    public void Dispose() => _bench.Dispose();

    [Theory]
    [InlineData(2, 10_000, 6)]
    [InlineData(4, 5_000, 8)]
    [Trait("Turn", "2")]
    public void PowerLoss_AnySubsetOfTheBlocksOnTheDisk_LeavesThePrefixOfWholeRecords(int writes, int valueBytes, int blocksExpected)
    {
        HaveInFlight(writes, valueBytes);
        var blocks = Changed(BlockBytes);
        Assert.Equal(blocksExpected, blocks.Count);
        var seen = new HashSet<int>();
        for (var subset = 0; subset < 1 << blocks.Count; subset++)
            seen.Add(Check(blocks, BlockBytes, index => (subset >> index & 1) != 0, $"blocks {subset:b}"));
        Assert.Equal(Enumerable.Range(0, writes + 1), seen.Order());
    }

    [Theory]
    [InlineData(2, 10_000)]
    [Trait("Turn", "2")]
    public void PowerLoss_RandomSubsetsOfTheSectorsOfLongerWritesOnTheDisk_LeaveThePrefixOfWholeRecords(int writes, int valueBytes) =>
        PowerLoss_RandomSubsetsOfTheSectorsOnTheDisk_LeaveThePrefixOfWholeRecords(writes, valueBytes);

    [Theory]
    [InlineData(4, 5_000)]
    public void PowerLoss_RandomSubsetsOfTheSectorsOnTheDisk_LeaveThePrefixOfWholeRecords(int writes, int valueBytes)
    {
        HaveInFlight(writes, valueBytes);
        var sectors = Changed(SectorBytes);
        Assert.True(sectors.Count >= 40, $"The writes changed only {sectors.Count} sectors.");
        // Each alone missing, each alone there, and random ones.
        for (var one = 0; one < sectors.Count; one++)
        {
            Check(sectors, SectorBytes, index => index != one, $"all but sector {sectors[one]}");
            Check(sectors, SectorBytes, index => index == one, $"only sector {sectors[one]}");
        }
        for (var seed = 1; seed <= 40; seed++)
        {
            var random = new Random(seed);
            Check(sectors, SectorBytes, _ => random.Next(8) > 0, $"random sectors, seed {seed}");
        }
    }

    /// <summary>Loses power when so many writes are in flight, each of one record: the first one begins first and ends last.</summary>
    private void HaveInFlight(int writes, int valueBytes)
    {
        _options = _options with { JournalWrites = writes };
        _bench = new StoreBench(options: _options);
        _bench.Open();
        _bench.Write(request => request.Put("0"u8, "0"u8));
        _segment = _bench.Disk.OpenPaths.First(path => path.EndsWith(".journal", StringComparison.Ordinal));
        _before = _bench.Disk.ReadAll(_segment);
        var begins = new SortedSet<int>();
        var submitted = 1;
        _bench.Disk.Fault = call =>
        {
            if (call.Operation == "Write" && call.Path == _segment)
                begins.Add((int)call.Offset);
            return DiskFault.None;
        };
        _bench.Disk.DuringWrite = path =>
        {
            if (path != _segment || submitted == writes)
                return;
            var isFirst = submitted == 1;
            Submit(++submitted, valueBytes);
            _bench.RunUntilIdle();
            if (isFirst)
                _bench.Disk.CrashAtCall = _bench.Disk.Calls + 1;
        };
        Submit(1, valueBytes);
        _bench.RunUntilIdle();
        Assert.True(_bench.Disk.IsOff && begins.Count == writes, $"Of {writes} writes, {begins.Count} were in flight together.");
        _bench.Close();
        _bench.Disk.Restart(UnsyncedWrites.Kept);
        _bench.Disk.Fault = null;
        _after = _bench.Disk.ReadAll(_segment);
        _begins = [.. begins];
    }

    /// <summary>Opens the store with some of the pieces on the disk, checks it and goes on. Returns how many of the writes it had.</summary>
    private int Check(List<int> pieces, int pieceBytes, Func<int, bool> isThere, string story)
    {
        var content = (byte[])_before.Clone();
        var whole = _begins.Length;
        for (var index = 0; index < pieces.Count; index++)
        {
            if (isThere(index))
                _after.AsSpan(pieces[index], pieceBytes).CopyTo(content.AsSpan(pieces[index]));
            else
                whole = Math.Min(whole, Array.FindLastIndex(_begins, begin => begin <= pieces[index]));
        }
        using var bench = new StoreBench(_bench.Disk.Copy(), options: _options);
        bench.Disk.WriteAll(_segment, content);
        bench.Open();
        var expected = string.Join(' ', Enumerable.Range(0, whole + 1));
        var keys = string.Join(' ', bench.ReadAllKeys().Keys);
        Assert.True(keys == expected, $"{story}: {whole} writes are whole, but the store has {keys}.");
        // Nothing behind the end is read later, also when the journal has grown past it.
        bench.Write(request => request.Put("after"u8, new byte[20_000]));
        bench.Close();
        bench.Open();
        Assert.True($"{keys} after" == string.Join(' ', bench.ReadAllKeys().Keys), $"{story}: after another restart the store has "
            + $"{string.Join(' ', bench.ReadAllKeys().Keys)}.");
        return whole;
    }

    /// <summary>The places of the pieces that the writes changed.</summary>
    private List<int> Changed(int pieceBytes) =>
        [.. Enumerable.Range(0, _after.Length / pieceBytes).Select(index => index * pieceBytes)
            .Where(at => !_after.AsSpan(at, pieceBytes).SequenceEqual(_before.AsSpan(at, pieceBytes)))];

    private void Submit(int number, int valueBytes) =>
        _ = _bench.Submit(request => request.Put(
            StoreBench.Text(number.ToString(CultureInfo.InvariantCulture)), StoreBench.Text(new string((char)('a' + number), valueBytes))));
}
