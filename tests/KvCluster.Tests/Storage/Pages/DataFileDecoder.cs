using System.Buffers.Binary;
using KvCluster.Storage.Encoding;

namespace KvCluster.Tests.Storage.Pages;

/// <summary>
/// Reads a data file by FORMAT.md alone. It uses nothing of the engine but the checksum, so what it cannot read is missing from the document.
/// </summary>
internal sealed class DataFileDecoder
{
    private const int PageBytes = 8192;
    private readonly byte[] _file;
    private readonly int _meta;
    private readonly HashSet<int> _reached = [0, 1];
    private readonly Dictionary<string, List<(byte[] Key, byte[] Value)>> _trees = [];

    public DataFileDecoder(byte[] file)
    {
        _file = file;
        _meta = U64(24) > U64(PageBytes + 24) ? 0 : PageBytes;
        Assert.Equal(U32(_meta), Crc32C.Of(file.AsSpan(_meta + 4, PageBytes - 4)));
        Assert.Equal((byte)6, file[_meta + 4]);
        Assert.Equal("KVCDATA\0"u8.ToArray(), file[(_meta + 8)..(_meta + 16)]);
        Assert.Equal(8192u, U32(_meta + 20));
        Assert.Equal((ulong)(_meta / PageBytes), U64(_meta + 24) % 2);
    }

    /// <summary>The version of the file.</summary>
    public uint Version => U32(_meta + 16);

    /// <summary>How many compressed values were read from leaves, and from runs.</summary>
    public (int Inline, int InRuns) Compressed { get; private set; }

    /// <summary>Epoch and change of the last record covered.</summary>
    public Etag Etag => new(U64(_meta + 80), U64(_meta + 72));

    /// <summary>The shard time of that record.</summary>
    public long ShardTime => (long)U64(_meta + 104);

    /// <summary>The longest prefix and the deepest tree seen.</summary>
    public (int Prefix, int Depth) Seen { get; private set; }

    /// <summary>All entries of a tree, in order.</summary>
    public List<(byte[] Key, byte[] Value)> ReadTree(int tree)
    {
        var root = _meta + 128 + (tree * 32);
        var entries = new List<(byte[] Key, byte[] Value)>();
        if (U64(root) != 0)
            ReadPage(U64(root), U32(root + 8), entries, 1);
        Assert.Equal(U64(root + 16), (ulong)entries.Count);
        return entries;
    }

    /// <summary>All sets, in order, with their members, and how many of them have trees.</summary>
    public (List<(byte[] Key, ModelSet Set)> Sets, int Large) ReadSets()
    {
        var sets = new List<(byte[] Key, ModelSet Set)>();
        foreach (var (key, value) in ReadTree(2))
        {
            var (etag, count) = (new Etag(BitConverter.ToUInt64(value, 8), BitConverter.ToUInt64(value)), (int)BitConverter.ToUInt64(value, 16));
            var members = new List<byte[]>();
            if (_trees.TryGetValue(Convert.ToHexString(key), out var tree))
                members.AddRange(tree.Select(entry => entry.Key));
            for (var (index, start) = (0, 0); value.Length > 24 && index < count; index++)
            {
                var end = BitConverter.ToUInt16(value, 24 + (index * 2));
                members.Add(value.AsSpan(24 + (count * 2))[start..end].ToArray());
                start = end;
            }
            Assert.Equal(count, members.Count);
            Assert.True(value.Length == 24 || value.Length == 24 + (count * 2) + members.Sum(member => member.Length));
            sets.Add((key, new ModelSet(etag, ModelSet.Empty.Members.Union(members))));
            Assert.Equal(members.Select(Convert.ToHexString), sets[^1].Set.Members.Select(Convert.ToHexString));
        }
        return (sets, _trees.Count);
    }

    /// <summary>Checks that every page is either reached or marked free or pending in the map, never both. Call it after all trees were read.</summary>
    public void CheckFreeMap()
    {
        var (directory, pages) = (U64(_meta + 56), (int)U64(_meta + 48));
        var bits = new Dictionary<int, (bool Free, bool Pending)>();
        var at = Open(directory, U32(_meta + 64), 5);
        for (var index = 0; index < U16(at + 6); index++)
        {
            var sections = Open(U64(at + 64 + (index * 16)), U32(at + 64 + (index * 16) + 8), 4);
            for (var page = 0; page < 15 * 2048; page++)
            {
                var section = sections + 64 + (page / 2048 * 512);
                var (place, mask) = (page % 2048 / 8, 1 << (page % 8));
                bits[(index * 15 * 2048) + page] = ((_file[section + place] & mask) != 0, (_file[section + 256 + place] & mask) != 0);
            }
        }
        for (var page = 0; page < pages; page++)
            Assert.Equal(1, (_reached.Contains(page) ? 1 : 0) + (bits[page].Free ? 1 : 0) + (bits[page].Pending ? 1 : 0));
    }

    /// <summary>Reads a page and what is below it. Returns whether a leaf of them says that it refers to other pages.</summary>
    private bool ReadPage(ulong reference, uint checksum, List<(byte[] Key, byte[] Value)> entries, int depth)
    {
        var type = _file[(int)reference + 4];
        var page = Open(reference, checksum, type);
        var (count, prefixLength) = (U16(page + 6), U16(page + 32));
        var prefix = _file[(page + PageBytes - prefixLength)..(page + PageBytes)];
        Seen = (Math.Max(Seen.Prefix, prefixLength), Math.Max(Seen.Depth, depth));
        var anyRefers = type == 1 && _file[page + 5] == 1;
        for (var index = 0; index < count; index++)
        {
            var cell = page + U16(page + 64 + (count * 8) + (index * 2));
            if (type == 2)
            {
                Assert.Equal(0, cell % 8);
                var before = entries.Count;
                var isReferring = ReadPage(U64(cell), U32(cell + 8), entries, depth + 1);
                Assert.Equal((ulong)(entries.Count - before) + (isReferring ? 1ul << 63 : 0), U64(cell + 12));
                anyRefers |= isReferring;
                continue;
            }
            Assert.Equal((byte)1, type);
            var (isOverflow, hasTree) = (U16(cell + 2) == 65_535, U16(cell + 2) == 65_534);
            var isCompressed = isOverflow ? (U32(cell + 4) & (1u << 30)) != 0 : !hasTree && U16(cell + 2) >= 32_768;
            var rest = cell + (isOverflow ? isCompressed ? 24 : 20 : hasTree ? 44 : 4);
            var suffixLength = U16(cell);
            var head = _file[(page + 64 + (index * 8))..(page + 72 + (index * 8))];
            Array.Reverse(head);
            Assert.True(head.AsSpan(Math.Min(8, (int)suffixLength)).IndexOfAnyExcept((byte)0) < 0);
            var restLength = Math.Max(0, suffixLength - 8);
            byte[] key = [.. prefix, .. head[..Math.Min(8, (int)suffixLength)], .. _file[rest..(rest + restLength)]];
            if (hasTree)
            {
                Assert.Equal((1, 0u, 0), (_file[page + 5], U32(cell + 4), cell % 8));
                var tree = _trees[Convert.ToHexString(key)] = [];
                ReadPage(U64(cell + 8), U32(cell + 16), tree, 1);
                Assert.Equal(U64(cell + 36), (ulong)tree.Count);
                entries.Add((key, _file[(cell + 20)..(cell + 44)]));
                continue;
            }
            var value = isOverflow ? ReadRun(cell, rest + restLength) : _file[(rest + restLength)..(rest + restLength + (U16(cell + 2) & 32_767))];
            if (isCompressed)
                value = isOverflow ? Decompress(U32(cell + 20), value) : Decompress(U32(rest + restLength), value.AsSpan(4));
            if (isCompressed)
                Compressed = isOverflow ? (Compressed.Inline, Compressed.InRuns + 1) : (Compressed.Inline + 1, Compressed.InRuns);
            entries.Add((key, value));
        }
        return anyRefers;
    }

    private byte[] ReadRun(int cell, int behindKey)
    {
        Assert.Equal(0, cell % 8);
        var (whole, isDivided) = ((int)(U32(cell + 4) & 0x3FFF_FFFF), U32(cell + 4) >> 31 == 1);
        var beginning = isDivided ? (64 + whole) % PageBytes : 0;
        var length = whole - beginning;
        Assert.True(!isDivided || length >= PageBytes - 64, $"The run of a divided value has only {length} bytes of it.");
        var run = (int)U64(cell + 8);
        var pages = (64 + length + PageBytes - 1) / PageBytes;
        Assert.Equal((byte)3, _file[run + 4]);
        Assert.Equal(((uint)length, (ushort)beginning), (U32(run + 40), U16(run + 34)));
        Assert.Equal((U32(cell + 16), (ulong)(run / PageBytes)), (U32(run), U64(run + 8)));
        Assert.Equal(U32(run), Crc32C.Of(_file.AsSpan(run + 4, (pages * PageBytes) - 4)));
        for (var page = 0; page < pages; page++)
            Assert.True(_reached.Add((run / PageBytes) + page));
        Assert.True(_file.AsSpan(run + 64 + length, (pages * PageBytes) - 64 - length).IndexOfAnyExcept((byte)0) < 0);
        return [.. _file[behindKey..(behindKey + beginning)], .. _file[(run + 64)..(run + 64 + length)]];
    }

    /// <summary>A header with its length before it, and then a block of LZ4 (github.com/lz4/lz4, doc/lz4_Block_format.md).</summary>
    private static byte[] Decompress(uint length, ReadOnlySpan<byte> compressed)
    {
        var at = 1 + compressed[0];
        List<byte> value = [.. compressed[1..at]];
        while (true)
        {
            var token = compressed[at++];
            var literals = Length(token >> 4, compressed, ref at);
            value.AddRange(compressed.Slice(at, literals));
            at += literals;
            if (at == compressed.Length)
                break;
            var distance = compressed[at] | (compressed[at + 1] << 8);
            at += 2;
            for (var left = Length(token & 15, compressed, ref at) + 4; left > 0; left--)
                value.Add(value[^distance]);
        }
        Assert.Equal(length, (uint)value.Count);
        return [.. value];

        static int Length(int first, ReadOnlySpan<byte> block, ref int at)
        {
            for (var more = first == 15; more; at++)
            {
                first += block[at];
                more = block[at] == 255;
            }
            return first;
        }
    }

    private int Open(ulong reference, uint checksum, byte type)
    {
        Assert.Equal(0ul, reference % PageBytes);
        var page = (int)reference;
        Assert.True(_reached.Add(page / PageBytes), $"Page {page / PageBytes} is reached twice.");
        Assert.Equal((type, (ulong)(page / PageBytes)), (_file[page + 4], U64(page + 8)));
        Assert.Equal((checksum, checksum), (U32(page), Crc32C.Of(_file.AsSpan(page + 4, PageBytes - 4))));
        Assert.Equal(new byte[24], _file[(page + 40)..(page + 64)]);
        return page;
    }

    private ushort U16(int at) => BinaryPrimitives.ReadUInt16LittleEndian(_file.AsSpan(at));

    private uint U32(int at) => BinaryPrimitives.ReadUInt32LittleEndian(_file.AsSpan(at));

    private ulong U64(int at) => BinaryPrimitives.ReadUInt64LittleEndian(_file.AsSpan(at));
}
