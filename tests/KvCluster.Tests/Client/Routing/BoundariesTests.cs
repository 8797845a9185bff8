using System.Buffers.Binary;
using System.Collections;
using System.Text;
using KvCluster.Client.Routing;
using Xunit.Abstractions;

namespace KvCluster.Tests.Client.Routing;

/// <summary>Compares the tree of heads with a sorted list that is searched from its start.</summary>
public sealed class BoundariesTests(ITestOutputHelper output)
{
    private static readonly Func<Random, byte[]>[] Kinds = [Path, FewBytes, Number, AnyBytes];

    [Fact]
    public void CountNotAfter_OfAnyKey_CountsWhatASortedListCounts()
    {
        var random = Seeds.Next(output);
        for (var round = 0; round < (Seeds.IsLong ? 4_000 : 400); round++)
        {
            // One kind of keys, or a mixture of all.
            var kind = random.Next(Kinds.Length + 1);
            var keys = Enumerable.Range(0, random.Next(1, random.Next(2, 1_000))).Select(_ => Key(random, kind)).ToList();
            keys.AddRange(keys.Take(random.Next(3)).ToArray());
            Check(random, keys, probes: 100, () => Key(random, kind));
        }
    }

    [Fact]
    [Trait("Turn", "7")]
    public void CountNotAfter_OfManyPaths_CountsWhatASortedListCounts()
    {
        var random = Seeds.Next(output);
        Check(random, [.. Enumerable.Range(0, 20_000).Select(_ => Path(random))], probes: 1_000, () => Path(random));
    }

    [Fact]
    public void CountNotAfter_WithoutKeys_IsZero()
    {
        var none = new Boundaries([]);
        Assert.Equal(0, none.CountNotAfter([]));
        Assert.Equal(0, none.CountNotAfter("key"u8));
    }

    [Fact]
    public void CountNotAfter_AtKeysThatDifferInLengthOnly_TellsThemApart()
    {
        // Heads are padded with zeros, so none of these differs from its neighbours by its head alone.
        var keys = Enumerable.Range(0, 40).Select(zeros => (byte[])[.. "tables/"u8, .. new byte[zeros]]).ToArray();
        var boundaries = Of(keys);
        for (var index = 0; index < keys.Length; index++)
            Assert.Equal(index + 1, boundaries.CountNotAfter(keys[index]));
        Assert.Equal(0, boundaries.CountNotAfter("tables"u8));
        Assert.Equal(0, boundaries.CountNotAfter([]));
        Assert.Equal(40, boundaries.CountNotAfter("tables/\u0001"u8));
    }

    [Fact]
    public void CountNotAfter_BesideAPrefixOfTheKeys_CountsNoneOrAll()
    {
        var boundaries = Of([.. "orders/2026/01"u8], [.. "orders/2026/02"u8], [.. "orders/2026/03"u8]);
        foreach (var less in (string[])["", "o", "orders/2026", "orders/2026/", "orders/2026/0", "orders/2025/99", "a", "orders/2026/00"])
            Assert.Equal(0, boundaries.CountNotAfter(Encoding.UTF8.GetBytes(less)));
        foreach (var greater in (string[])["orders/2026/1", "orders/2026/030", "orders/2027", "p", "z"])
            Assert.Equal(3, boundaries.CountNotAfter(Encoding.UTF8.GetBytes(greater)));
    }

    [Fact]
    public void CountNotAfter_AfterAPrefixThatNoNodeHolds_IsCorrect()
    {
        // A node has at most 65,535 bytes of a prefix. Keys are shorter, but the map comes from another process.
        var prefix = new byte[200_000];
        prefix.AsSpan().Fill((byte)'p');
        var boundaries = Of([.. prefix, 1], [.. prefix, 2], [.. prefix, 2, 0], [.. prefix, 3]);
        Assert.Equal(0, boundaries.CountNotAfter(prefix));
        Assert.Equal(1, boundaries.CountNotAfter([.. prefix, 1, 9]));
        Assert.Equal(2, boundaries.CountNotAfter([.. prefix, 2]));
        Assert.Equal(3, boundaries.CountNotAfter([.. prefix, 2, 1]));
        Assert.Equal(4, boundaries.CountNotAfter([.. prefix[1..], (byte)'q']));
        Assert.Equal(0, boundaries.CountNotAfter([.. prefix[1..], (byte)'o', 9, 9]));
    }

    /// <summary>A start with 100,000 shards must not depend on the square of their number.</summary>
    [Fact]
    public void Boundaries_WhenMade_ReadsEachKeyTwiceAndAllocatesInProportion()
    {
        var random = Seeds.Next(output);
        var (few, many) = (Sorted(Enumerable.Range(0, 2_000).Select(_ => Path(random))), Sorted(Enumerable.Range(0, 40_000).Select(_ => Path(random))));
        var counting = new CountingList(many);
        Assert.Equal(many.Length, new Boundaries(counting).Count);
        Assert.Equal(2 * many.Length, counting.Reads);
        var (ofFew, ofMany) = (AllocatedBy(few), AllocatedBy(many));
        Assert.True(ofMany < 2 * ofFew * many.Length / few.Length, $"{few.Length} keys: {ofFew} bytes, {many.Length} keys: {ofMany} bytes");

        static long AllocatedBy(byte[][] keys)
        {
            ReadOnlyMemory<byte>[] list = [.. keys];
            return Allocations.Of(() => GC.KeepAlive(new Boundaries(list)));
        }
    }

    private static void Check(Random random, IEnumerable<byte[]> unsorted, int probes, Func<byte[]> another)
    {
        var keys = Sorted(unsorted);
        var boundaries = Of(keys);
        Assert.Equal(keys.Length, boundaries.Count);
        for (var probe = 0; probe < probes; probe++)
        {
            var index = random.Next(keys.Length);
            Assert.Equal(keys[index], boundaries[index].ToArray());
            var key = Near(random, random.Next(4) == 0 ? another() : keys[index]);
            var expected = keys.Count(bound => bound.AsSpan().SequenceCompareTo(key) <= 0);
            var found = boundaries.CountNotAfter(key);
            if (expected != found)
                Assert.Fail($"{Convert.ToHexString(key)}: {found} instead of {expected} of "
                    + $"{string.Join(' ', keys.Take(50).Select(static bound => Convert.ToHexString(bound)))}");
        }
    }

    private static Boundaries Of(params byte[][] keys) => new([.. keys.Select(static key => (ReadOnlyMemory<byte>)key)]);

    private static byte[][] Sorted(IEnumerable<byte[]> keys) =>
        [.. keys.Order(Comparer<byte[]>.Create((left, right) => left.AsSpan().SequenceCompareTo(right)))];

    private static byte[] Key(Random random, int kind) => Kinds[kind < Kinds.Length ? kind : random.Next(Kinds.Length)](random);

    // The key, a beginning of it, a continuation, or one that differs in a byte.
    private static byte[] Near(Random random, byte[] key)
    {
        switch (random.Next(5))
        {
            case 0:
                return key[..random.Next(key.Length + 1)];
            case 1:
                return [.. key, (byte)(random.Next(2) * random.Next(256))];
            case 2 when key.Length > 0:
                byte[] changed = [.. key];
                var at = random.Next(key.Length);
                changed[at] = (byte)(random.Next(3) == 0 ? random.Next(256) : changed[at] + (random.Next(2) * 2) - 1);
                return changed;
            case 3 when key.Length > 0:
                return [.. key.Take(random.Next(key.Length)), .. AnyBytes(random)];
            default:
                return key;
        }
    }

    private static byte[] Path(Random random) => Encoding.UTF8.GetBytes(
        $"files/{(random.Next(4) == 0 ? "etc" : "usr/share")}/{(random.Next(2) == 0 ? "doc" : "a-long-directory-name")}"
            + $"/lib{random.Next(random.Next(1, 500))}/{(random.Next(8) == 0 ? "" : $"part{random.Next(2_000)}.html")}");

    private static byte[] FewBytes(Random random)
    {
        var key = new byte[random.Next(24)];
        for (var index = 0; index < key.Length; index++)
            key[index] = random.Next(8) switch { 0 => 255, 1 => 1, 2 => (byte)'a', _ => 0 };
        return key;
    }

    private static byte[] Number(Random random)
    {
        var number = new byte[16];
        BinaryPrimitives.WriteInt64BigEndian(number.AsSpan(8), random.NextInt64(1L << random.Next(1, 40)));
        return [.. "table/"u8, .. number];
    }

    private static byte[] AnyBytes(Random random)
    {
        var key = new byte[random.Next(12)];
        random.NextBytes(key);
        return key;
    }

    private sealed class CountingList(byte[][] keys) : IReadOnlyList<ReadOnlyMemory<byte>>
    {
        public int Reads { get; private set; }

        public int Count => keys.Length;

        public ReadOnlyMemory<byte> this[int index]
        {
            get
            {
                Reads++;
                return keys[index];
            }
        }

        public IEnumerator<ReadOnlyMemory<byte>> GetEnumerator() => throw new NotSupportedException("The keys are read by index.");

        IEnumerator IEnumerable.GetEnumerator() => GetEnumerator();
    }
}
