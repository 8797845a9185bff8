using KvCluster.Disk;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;
using KvCluster.Tests.Storage.Pages;
using TreePage = KvCluster.Storage.Pages.TreePage;

namespace KvCluster.Tests.Storage.Trees;

/// <summary>Splits and merges pages, with keys and values of every length.</summary>
public sealed unsafe class SplitTests
{
    // A put ended the engine on every replica in turn. A branch was split where its existing entries were halved by bytes, and the incoming separator
    // did not fit into its half ("A cell of 2048 bytes does not fit into a page with a gap of 2056 bytes").
    [Fact]
    public void Put_KeysWhoseSeparatorsFillAQuarterOfABranch_AreAllStored()
    {
        for (var seed = 0; seed < 60; seed++)
        {
            var random = new Random(seed);
            Store(random, 400, () => LongKey(random), () => random.Next(1000), $"seed {seed}");
        }
    }

    /// <summary>
    /// The shortest of all keys that are greater than the first and not greater than the second, for all pairs of short keys over four bytes.
    /// </summary>
    [Fact]
    public void Separator_OfAnyTwoKeys_IsTheShortestThatSeparatesThem()
    {
        byte[] alphabet = [0, 1, (byte)'m', 255];
        var keys = new List<byte[]> { Array.Empty<byte>() };
        for (int first = 0, length = 1; length <= 3; length++)
        {
            var end = keys.Count;
            for (; first < end; first++)
                keys.AddRange(alphabet.Select(last => (byte[])[.. keys[first], last]));
        }
        keys.Sort(ByteKeys.Order);
        for (var before = 0; before < keys.Count; before++)
        {
            var shortest = int.MaxValue;
            for (var behind = before + 1; behind < keys.Count; behind++)
            {
                // All keys between the two, the second one included, have been seen by now.
                shortest = Math.Min(shortest, keys[behind].Length);
                var separator = PageSplit.Separator(keys[before], keys[behind]);
                Assert.True(separator.SequenceCompareTo(keys[before]) > 0 && separator.SequenceCompareTo(keys[behind]) <= 0);
                Assert.Equal(shortest, separator.Length);
            }
        }
    }

    // Each key that no longer fitted at the end of a page filled in order got a page of its own.
    [Fact]
    public void Put_LargerValuesInFallingOrderAfterASortedLoad_FillsThePages()
    {
        const int Keys = 2_000;
        const int ValueBytes = 500;
        using var store = new ModelStore();
        static byte[] Key(int number) => System.Text.Encoding.ASCII.GetBytes($"key-{number:d8}");
        store.Batch(batch =>
        {
            for (var number = 0; number < Keys; number++)
                batch.Put(TreeId.Kv, Key(number), new byte[100]);
            for (var number = Keys - 1; number >= 0; number--)
                batch.Put(TreeId.Kv, Key(number), new byte[ValueBytes]);
        });
        store.Publish();
        Assert.InRange(store.Store.ScratchBytes, 1, 3 * Keys * ValueBytes);
    }

    // The leaf was split: the bytes of a longer prefix were missing in the estimate of its space, although a prefix that shortens no cell is not taken.
    [Fact]
    public void Put_KeyThatWasDeletedFromAFullLeaf_FitsThereAgain()
    {
        // Keys of eight bytes are in the heads alone, and cells with values of two bytes have six, so that the entries fill the page to the last byte.
        const int EntryBytes = Page.EntryBytes + 6;
        static byte[] Key(int number) => [0, 0, 0, 0, 0, 0, (byte)(number >> 8), (byte)number];
        using var store = new ModelStore();
        store.Batch(batch =>
        {
            for (var number = 0; number < Page.BodyBytes / EntryBytes; number++)
                batch.Put(TreeId.Kv, Key(number), new byte[2]);
            batch.Delete(TreeId.Kv, Key(100));
            batch.Put(TreeId.Kv, Key(100), new byte[2]);
        });
        store.Publish();
        var root = store.Store.Roots.Published.Trees[(int)TreeId.Kv].Link.Reference.Memory;
        Assert.Equal((PageType.Leaf, Page.BodyBytes), (Page.Type(root), Page.Used(root)));
        store.CheckPublished();
    }

    // A key behind the last one of the leaf before is not searched for.
    [Fact]
    public void Put_SortedRunsAmongOtherKeys_AreAllStored() => Seeds.Run(12, random =>
    {
        var longest = random.Next(3) == 0 ? Page.KeyBytesMax : random.Next(2, 40);
        var shared = new byte[random.Next(longest)];
        byte[] last = [];
        byte[] NextKey()
        {
            var ends = last.Length == 0 || last[^1] == byte.MaxValue || random.Next(40) == 0;
            last = ends ? AnyKey(random, shared, longest) : [.. last[..^1], (byte)random.Next(last[^1] + 1, Math.Min(last[^1] + 4, byte.MaxValue) + 1)];
            return last;
        }
        Store(random, 1_500, NextKey, () => random.Next(200), $"runs of keys to {longest}");
    });

    [Fact]
    public void Put_KeysAndValuesOfAllLengths_AreAllStored() => Seeds.Run(12, random =>
    {
        // Keys share prefixes of any length, so every page has a different prefix.
        var longest = random.Next(3) switch { 0 => Page.KeyBytesMax, 1 => random.Next(1, Page.KeyBytesMax + 1), _ => random.Next(1, 40) };
        var shared = new byte[random.Next(longest)];
        var values = random.Next(4) switch { 0 => OverflowRun.InlineValueBytesMax + 2, 1 => 3 * Page.Bytes, 2 => Page.BodyBytes / 2, _ => 300 };
        Store(
            random, 400, () => AnyKey(random, shared, longest), () => random.Next(4) == 0 ? random.Next(values) : random.Next(Math.Min(values, 600)),
            $"keys to {longest}, values to {values}");
    });

    [Fact]
    [Trait("Turn", "6")]
    public void Branch_SeparatorDoesNotFit_IsSplitSoThatBothHalvesFit() => Seeds.Run(150, random =>
    {
        using var pages = new Pages();
        var longest = random.Next(2) == 0 ? Page.KeyBytesMax : random.Next(1, Page.KeyBytesMax + 1);
        var prefix = Bytes(random, random.Next(longest));
        var keys = new SortedSet<byte[]>(ByteKeys.Order);
        var separator = Suffixed(random, prefix, longest);
        Page.Format(pages.Source, PageType.Branch, prefix);
        TreePage.InsertChild(pages.Source, 0, default, SubtreeLink.InMemory(new PageRef(1)));
        for (var misses = 0; misses < 20;)
        {
            var key = Suffixed(random, prefix, longest);
            if (key.AsSpan().SequenceEqual(separator) || keys.Contains(key) || Page.Gap(pages.Source) < TreePage.BranchEntryBytes(key.Length - prefix.Length))
            {
                misses++;
                continue;
            }
            TreePage.InsertChild(pages.Source, TreePage.FindChild(pages.Source, key) + 1, key, InFile(key));
            keys.Add(key);
        }
        if (keys.Count < 2)
            return;
        var index = TreePage.FindChild(pages.Source, separator) + 1;
        var up = new byte[Page.KeyBytesMax];
        var added = new PageRef(Reference(separator).Value | 1);
        up = up[..PageSplit.Branch(pages.Source, index, separator, added, pages.Left, pages.Right, up)];

        keys.Add(separator);
        Assert.Equal(keys.Count + 1, Page.Count(pages.Left) + Page.Count(pages.Right));
        Assert.True(Page.Count(pages.Left) > 0 && Page.Count(pages.Right) > 0);
        Assert.Equal(new PageRef(1), TreePage.Child(pages.Left, 0)->Reference);
        Assert.Equal([.. Keys(pages.Left, 1), up, .. Keys(pages.Right, 1)], keys.ToList());
        foreach (var key in keys)
        {
            var half = key.AsSpan().SequenceCompareTo(up) < 0 ? pages.Left : pages.Right;
            var child = *TreePage.Subtree(half, TreePage.FindChild(half, key));
            if (key == separator)
                Assert.Equal(added, child.Link.Reference);
            else
                Assert.Equal((InFile(key).Link, InFile(key).Summary), (child.Link, child.Summary));
        }
    });

    // Redistribution counted only existing entries, so a large new entry still did not fit afterwards. The next redistribution moved the same entries
    // back, hundreds of times in one put.
    [Fact]
    public void Redistribute_IncomingKey_LeavesRoomInItsPage() => Seeds.Run(300, random =>
    {
        using var pages = new Pages();
        var longest = random.Next(2) == 0 ? Page.KeyBytesMax : random.Next(2, Page.KeyBytesMax + 1);
        var values = random.Next(1, Page.BodyBytes / 2);
        var prefix = Bytes(random, random.Next(longest - 1));
        var (first, second) = FillTwoLeaves(random, pages, prefix, longest, values);
        if (first.Count == 0 || second.Count == 0)
            return;
        var key = Suffixed(random, prefix, longest);
        if (first.Contains(key) || second.Contains(key) || first.Min!.AsSpan().SequenceCompareTo(key) > 0)
            return;
        var valueBytes = random.Next(OverflowRun.IsNeeded(key.Length, values, dividesValues: true) ? 1 : values);
        var bytes = TreePage.LeafEntryBytes(key.Length, valueBytes, overflow: false);
        var belongsLeft = second.Min!.AsSpan().SequenceCompareTo(key) > 0;
        var at = belongsLeft ? TreePage.LowerBound(pages.Source, key, out _) : first.Count + TreePage.LowerBound(pages.Second, key, out _);
        var separator = new byte[Page.KeyBytesMax];
        if (!PageSplit.TryRedistribute(pages.Source, pages.Second, at, key, bytes, pages.Left, pages.Right, separator, out var length))
            return;

        Assert.Equal([.. first, .. second], [.. Keys(pages.Left, 0), .. Keys(pages.Right, 0)]);
        var own = key.AsSpan().SequenceCompareTo(separator.AsSpan(0, length)) < 0 ? pages.Left : pages.Right;
        Assert.True(key.AsSpan().StartsWith(Page.Prefix(own)) && Page.Gap(own) >= bytes, "The key does not fit into its page.");
        Assert.All(Keys(pages.Left, 0), left => Assert.True(left.AsSpan().SequenceCompareTo(separator.AsSpan(0, length)) < 0));
        Assert.All(Keys(pages.Right, 0), right => Assert.True(right.AsSpan().SequenceCompareTo(separator.AsSpan(0, length)) >= 0));
    });

    [Fact]
    public void Leaf_IncomingKey_IsSplitSoThatBothHalvesFit() => Seeds.Run(100, random =>
    {
        using var pages = new Pages();
        var longest = random.Next(2) == 0 ? Page.KeyBytesMax : random.Next(2, Page.KeyBytesMax + 1);
        var values = random.Next(1, Page.BodyBytes / 2);
        var prefix = Bytes(random, random.Next(longest - 1));
        var keys = FillLeaf(random, pages.Source, prefix, longest, values, _ => true);
        var key = Suffixed(random, prefix, longest);
        if (keys.Count == 0 || keys.Contains(key))
            return;
        var bytes = TreePage.LeafEntryBytes(key.Length, 0, overflow: false);
        var separator = new byte[Page.KeyBytesMax];
        separator = separator[..PageSplit.Leaf(pages.Source, TreePage.LowerBound(pages.Source, key, out _), key, bytes, pages.Left, pages.Right, separator)];

        Assert.Equal(keys.ToList(), [.. Keys(pages.Left, 0), .. Keys(pages.Right, 0)]);
        Assert.All(Keys(pages.Left, 0), left => Assert.True(left.AsSpan().SequenceCompareTo(separator) < 0));
        Assert.All(Keys(pages.Right, 0), right => Assert.True(right.AsSpan().SequenceCompareTo(separator) >= 0));
        Assert.True(key.AsSpan().StartsWith(Page.Prefix(key.AsSpan().SequenceCompareTo(separator) < 0 ? pages.Left : pages.Right)));
    });

    [Fact]
    public void Merge_HalvesOfASplit_GivesTheOriginalPageOrIsRefused() => Seeds.Run(400, random =>
    {
        using var pages = new Pages();
        var longest = random.Next(2) == 0 ? Page.KeyBytesMax : random.Next(2, Page.KeyBytesMax + 1);
        var (first, second) = FillTwoLeaves(random, pages, Bytes(random, random.Next(longest - 1)), longest, random.Next(1, 300));
        while (first.Count + second.Count > 2 && random.Next(8) != 0)
        {
            var fromFirst = (random.Next(2) == 0 && first.Count > 1) || second.Count < 2;
            var keys = fromFirst ? first : second;
            if (keys.Count < 2)
                break;
            var gone = random.Next(keys.Count);
            keys.Remove(keys.ElementAt(gone));
            TreePage.Remove(fromFirst ? pages.Source : pages.Second, gone);
        }
        if (first.Count == 0 || second.Count == 0)
            return;
        if (PageSplit.TryMerge(pages.Source, pages.Second, PageSplit.Separator(first.Max, second.Min), pages.Left))
            Assert.Equal([.. first, .. second], Keys(pages.Left, 0));
        else
            Assert.True(Page.Used(pages.Source) + Page.Used(pages.Second) > Page.BodyBytes / 4, "Two nearly empty pages were not joined.");
    });

    private static (SortedSet<byte[]> First, SortedSet<byte[]> Second) FillTwoLeaves(Random random, Pages pages, byte[] prefix, int longest, int values)
    {
        var boundary = Suffixed(random, prefix, longest);
        return (FillLeaf(random, pages.Source, prefix, longest, values, key => key.AsSpan().SequenceCompareTo(boundary) < 0),
            FillLeaf(random, pages.Second, prefix, longest, values, key => key.AsSpan().SequenceCompareTo(boundary) >= 0));
    }

    private static SortedSet<byte[]> FillLeaf(Random random, byte* page, byte[] prefix, int longest, int values, Func<byte[], bool> belongs)
    {
        var keys = new SortedSet<byte[]>(ByteKeys.Order);
        Page.Format(page, PageType.Leaf, prefix);
        for (var misses = 0; misses < 20;)
        {
            var (key, valueBytes) = (Suffixed(random, prefix, longest), random.Next(values));
            if (!belongs(key) || OverflowRun.IsNeeded(key.Length, valueBytes, dividesValues: true)
                || keys.Contains(key) || Page.Gap(page) < TreePage.LeafEntryBytes(key.Length - prefix.Length, valueBytes, overflow: false))
            {
                misses++;
                continue;
            }
            TreePage.InsertInline(page, TreePage.LowerBound(page, key, out _), key, valueBytes);
            keys.Add(key);
        }
        return keys;
    }

    private static List<byte[]> Keys(byte* page, int from)
    {
        var keys = new List<byte[]>();
        for (var i = from; i < Page.Count(page); i++)
        {
            var key = new byte[TreePage.KeyLength(page, i)];
            TreePage.CopyKey(page, i, key);
            keys.Add(key);
        }
        return keys;
    }

    /// <summary>A child of the file, with what is below it.</summary>
    private static SubtreeLink InFile(byte[] key) => new(new PageLink(Reference(key), 7), new SubtreeSummary(Reference(key).Value / 3));

    private static PageRef Reference(byte[] key) => PageRef.ToFile(BitConverter.ToUInt32(System.Security.Cryptography.SHA256.HashData(key)));

    private static byte[] Suffixed(Random random, byte[] prefix, int longest) =>
        [.. prefix, .. Bytes(random, random.Next(3) == 0 ? longest - prefix.Length : random.Next(1, longest - prefix.Length + 1))];

    private static byte[] AnyKey(Random random, byte[] shared, int longest)
    {
        var key = Bytes(random, random.Next(3) == 0 ? longest : random.Next(1, longest + 1));
        shared.AsSpan(0, Math.Min(shared.Length, random.Next(key.Length))).CopyTo(key);
        return key;
    }

    private static byte[] Bytes(Random random, int count)
    {
        var bytes = new byte[count];
        random.NextBytes(bytes);
        return bytes;
    }

    private static byte[] LongKey(Random random)
    {
        var key = new byte[1 + random.Next(1959, 2044) + random.Next(1, 4)];
        key.AsSpan().Fill((byte)'x');
        key[0] = (byte)random.Next(2);
        random.NextBytes(key.AsSpan(key.Length - random.Next(1, 4)));
        return key;
    }

    private static void Store(Random random, int puts, Func<byte[]> key, Func<int> valueBytes, string name)
    {
        using var disk = new SimulatedDisk();
        using var store = PageStore.Create(disk, "data", new PageStoreOptions { MapBytes = 1 << 28 }, new byte[16]);
        var model = new SortedDictionary<byte[], byte[]>(ByteKeys.Order);
        try
        {
            store.Apply(batch =>
            {
                for (var put = 0; put < puts; put++)
                {
                    var (k, v) = (key(), new byte[valueBytes()]);
                    random.NextBytes(v);
                    batch.Put(TreeId.Kv, k, v);
                    model[k] = v;
                }
            });
            store.Verify();
        }
        catch (Exception exception)
        {
            throw new Xunit.Sdk.XunitException($"{name}: {exception.Message}", exception);
        }
        using var snapshot = store.Roots.OpenSnapshot();
        using var cursor = snapshot.Cursor(TreeId.Kv);
        foreach (var (k, v) in model)
        {
            Assert.True(cursor.MoveNext(), name);
            Assert.True(cursor.Key.SequenceEqual(k) && cursor.Value.SequenceEqual(v), name);
        }
        Assert.False(cursor.MoveNext(), name);
    }

    /// <summary>Memory for the pages that a function reads and writes.</summary>
    private sealed class Pages : IDisposable
    {
        private readonly AlignedBuffer _memory = new(4 * Page.Bytes);

        public byte* Source => At(0);

        public byte* Second => At(1);

        public byte* Left => At(2);

        public byte* Right => At(3);

        public void Dispose() => _memory.Dispose();

        private byte* At(int page)
        {
            // Native memory: the address remains valid.
            fixed (byte* memory = _memory.Span)
                return memory + (page * Page.Bytes);
        }
    }
}
