using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>
/// Power is lost with two journal writes in flight, neither of which is answered. Whatever part of either is on the disk, the store opens with what was
/// answered before and with the longest prefix of whole records, and goes on behind it.
/// </summary>
public sealed class SubsetsInFlightTests : IDisposable
{
    private const int BlockBytes = 4096;
    private const int SectorBytes = 512;
    private static readonly StoreOptions OneSegment = StoreBench.SmallOptions with { SegmentBytesMin = 128 << 10 };
    private readonly StoreBench _bench = new(options: OneSegment);
    private readonly string _segment;

    /// <summary>The segment before and after the two writes.</summary>
    private readonly byte[] _before;
    private readonly byte[] _after;

    /// <summary>Where the second write begins.</summary>
    private readonly int _second;

    public SubsetsInFlightTests()
    {
        _bench.Open();
        _bench.Write(request => request.Put("zero"u8, "0"u8));
        _segment = _bench.Disk.OpenPaths.First(path => path.EndsWith(".journal", StringComparison.Ordinal));
        _before = _bench.Disk.ReadAll(_segment);
        var (offset, isFirst) = (0L, true);
        _bench.Disk.Fault = call =>
        {
            if (call.Operation == "Write" && call.Path == _segment)
                offset = Math.Max(offset, call.Offset);
            return DiskFault.None;
        };
        Submit("first", 'a');
        _bench.Disk.DuringWrite = path =>
        {
            if (path != _segment || !isFirst)
                return;
            isFirst = false;
            Submit("second", 'b');
            _bench.RunUntilIdle();
            _bench.Disk.CrashAtCall = _bench.Disk.Calls + 1;
        };
        _bench.RunUntilIdle();
        Assert.True(_bench.Disk.IsOff && !isFirst, "The two writes were not in flight together.");
        _bench.Close();
        _bench.Disk.Restart(UnsyncedWrites.Kept);
        _bench.Disk.Fault = null;
        _after = _bench.Disk.ReadAll(_segment);
        _second = (int)offset;
    }

    public void Dispose() => _bench.Dispose();

    [Fact]
    public void PowerLoss_AnySubsetOfTheBlocksOnTheDisk_LeavesThePrefixOfWholeRecords()
    {
        var blocks = Changed(BlockBytes);
        Assert.Equal(6, blocks.Count);
        var seen = new HashSet<string>();
        for (var subset = 0; subset < 1 << blocks.Count; subset++)
            seen.Add(Check(blocks, BlockBytes, index => (subset >> index & 1) != 0, $"blocks {subset:b}"));
        Assert.Equal(["zero", "first zero", "first second zero"], seen.OrderBy(keys => keys.Length));
    }

    [Fact]
    public void PowerLoss_RandomSubsetsOfTheSectorsOnTheDisk_LeaveThePrefixOfWholeRecords()
    {
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

    /// <summary>Opens the store with some of the pieces on the disk, checks it and goes on. Returns the keys that it had.</summary>
    private string Check(List<int> pieces, int pieceBytes, Func<int, bool> isThere, string story)
    {
        var content = (byte[])_before.Clone();
        var (hasFirst, hasSecond) = (true, true);
        for (var index = 0; index < pieces.Count; index++)
        {
            if (isThere(index))
                _after.AsSpan(pieces[index], pieceBytes).CopyTo(content.AsSpan(pieces[index]));
            else if (pieces[index] < _second)
                hasFirst = false;
            else
                hasSecond = false;
        }
        using var bench = new StoreBench(_bench.Disk.Copy(), options: OneSegment);
        bench.Disk.WriteAll(_segment, content);
        bench.Open();
        var keys = string.Join(' ', bench.ReadAllKeys().Keys);
        Assert.True(keys == (!hasFirst ? "zero" : !hasSecond ? "first zero" : "first second zero"), $"{story}: first {hasFirst}, second {hasSecond}, but the store has {keys}.");
        // Nothing behind the end is read later, also when the journal has grown past it.
        bench.Write(request => request.Put("after"u8, new byte[20_000]));
        bench.Close();
        bench.Open();
        Assert.True($"after {keys}" == string.Join(' ', bench.ReadAllKeys().Keys), $"{story}: after another restart the store has {string.Join(' ', bench.ReadAllKeys().Keys)}.");
        return keys;
    }

    /// <summary>The places of the pieces that the two writes changed.</summary>
    private List<int> Changed(int pieceBytes) =>
        [.. Enumerable.Range(0, _after.Length / pieceBytes).Select(index => index * pieceBytes).Where(at => !_after.AsSpan(at, pieceBytes).SequenceEqual(_before.AsSpan(at, pieceBytes)))];

    private void Submit(string key, char value) => _ = _bench.Submit(request => request.Put(StoreBench.Text(key), StoreBench.Text(new string(value, 10_000))));
}
