using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>
/// Compares a tree in a snapshot with its model by everything that reads: scans in both directions, prefixes, counts, lookups, and a cursor that goes to and
/// fro.
/// </summary>
internal sealed class TreeChecks(Random random)
{
    private const int CursorSteps = 40;

    /// <summary>Zeros and high bytes among the letters, so that keys are prefixes of others and close to the ends of a tree.</summary>
    private static readonly byte[] Letters = [0, 1, (byte)'a', (byte)'b', 0xFE, 0xFF];

    /// <summary>A key, often one that the tree has.</summary>
    public byte[] SomeKey(ModelTree tree) => tree.Count > 0 && random.Next(3) == 0 ? tree.Keys.ElementAt(random.Next(tree.Count)) : NewKey();

    /// <summary>A key, or nothing.</summary>
    public byte[] SomeBound() => random.Next(4) == 0 ? [] : NewKey();

    /// <summary>A key, mostly one that has a set.</summary>
    public byte[] SomeSetKey(ModelTree tree) => random.Next(4) == 0 ? NewKey() : tree.SetKeys.Skip(random.Next(4)).FirstOrDefault() ?? NewKey();

    /// <summary>A member of a set.</summary>
    public byte[] NewMember() => [.. NewKey().Take(KvStoreLimits.MemberBytesMax)];

    /// <summary>Every entry and every set, forwards and backwards, with its etag.</summary>
    public void CheckAll(KvSnapshot snapshot, KvTree tree, ModelTree expected)
    {
        CheckScan(snapshot.Scan(tree), [.. expected.Keys], expected);
        CheckScan(snapshot.Scan(tree, reverse: true), [.. expected.Keys.Reverse()], expected);
        CheckSets(snapshot.ScanSets(tree), [.. expected.SetKeys], expected);
        CheckSets(snapshot.ScanSets(tree, reverse: true), [.. expected.SetKeys.Reverse()], expected);
    }

    /// <summary>Random ranges, prefixes, keys and moves.</summary>
    public void CheckSome(KvSnapshot snapshot, KvTree tree, ModelTree expected)
    {
        byte[] from = SomeBound(), to = SomeBound();
        byte[][] inRange = [.. expected.Keys.Where(key => ModelTree.IsBetween(key, from, to))];
        CheckScan(snapshot.Scan(tree, from, to), inRange, expected);
        CheckScan(snapshot.Scan(tree, from, to, reverse: true), [.. inRange.Reverse()], expected);
        Assert.Equal(inRange.Length, snapshot.Count(tree, from, to));
        using (var cursor = snapshot.OpenCursor(tree, from, to))
            CheckMoves(cursor, inRange, expected);

        byte[][] setsInRange = [.. expected.SetKeys.Where(key => ModelTree.IsBetween(key, from, to))];
        CheckSets(snapshot.ScanSets(tree, from, to), setsInRange, expected);
        CheckSets(snapshot.ScanSets(tree, from, to, reverse: true), [.. setsInRange.Reverse()], expected);

        byte[] prefix = [.. SomeBound().Take(2)];
        CheckSets(snapshot.ScanSetsPrefix(tree, prefix), [.. expected.SetKeys.Where(key => key.AsSpan().StartsWith(prefix))], expected);
        byte[][] withPrefix = [.. expected.Keys.Where(key => key.AsSpan().StartsWith(prefix))];
        CheckScan(snapshot.ScanPrefix(tree, prefix), withPrefix, expected);
        Assert.Equal(withPrefix.Length, snapshot.CountPrefix(tree, prefix));

        var sought = SomeKey(expected);
        var isFound = snapshot.TryGet(tree, sought, out var value, out var etag);
        Assert.Equal(expected.Find(sought) is not null, isFound);
        if (isFound)
            CheckEntry(sought, value, etag, sought, expected);
    }

    private static void CheckScan(KvScan scan, byte[][] keys, ModelTree expected)
    {
        var next = 0;
        foreach (var entry in scan)
        {
            Assert.True(next < keys.Length, $"There are more than {keys.Length} entries.");
            CheckEntry(entry.Key, entry.Value, entry.Etag, keys[next++], expected);
        }
        Assert.Equal(keys.Length, next);
    }

    private static void CheckSets(KvSetScan scan, byte[][] keys, ModelTree expected)
    {
        var next = 0;
        foreach (var (key, set) in scan)
        {
            Assert.True(next < keys.Length, $"There are more than {keys.Length} sets.");
            CheckSet(key, set, keys[next++], expected);
        }
        Assert.Equal(keys.Length, next);
    }

    private static void CheckSet(ReadOnlySpan<byte> key, KvSet set, byte[] expectedKey, ModelTree expected)
    {
        if (!key.SequenceEqual(expectedKey))
            Assert.Fail($"The set of {Convert.ToHexString(key)} is where that of {Convert.ToHexString(expectedKey)} should be.");
        var (members, etag) = expected.FindSet(expectedKey);
        Assert.Equal((members.Count, etag), (set.Count, set.Etag));
        var next = 0;
        foreach (var member in set.Members())
            Assert.True(member.SequenceEqual(members[next++]), $"{Convert.ToHexString(member)} is where another member of {Convert.ToHexString(expectedKey)} "
                + "should be.");
        Assert.Equal(members.Count, next);
    }

    private static void CheckEntry(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, Etag etag, byte[] expectedKey, ModelTree expected)
    {
        if (!key.SequenceEqual(expectedKey))
            Assert.Fail($"{Convert.ToHexString(key)} is where {Convert.ToHexString(expectedKey)} should be.");
        var known = expected.Find(expectedKey)!.Value;
        if (!value.SequenceEqual(known.Value) || etag != known.Etag)
            Assert.Fail($"{Convert.ToHexString(key)} has {value.Length} bytes of {etag}, expected are {known.Value.Length} of {known.Etag}.");
    }

    /// <summary>Moves a cursor at random. At an end it turns round.</summary>
    private void CheckMoves(KvCursor cursor, byte[][] keys, ModelTree expected)
    {
        // Outside: before the first entry or behind the last one, and at first both.
        var at = random.Next(2) == 0 ? -1 : keys.Length;
        for (var step = 0; step < CursorSteps; step++)
        {
            if (random.Next(5) == 0)
            {
                var sought = SomeKey(expected);
                var first = Array.FindIndex(keys, key => ModelTree.Compare(key, sought) >= 0);
                Assert.Equal(first >= 0, cursor.Seek(sought));
                at = first >= 0 ? first : keys.Length;
            }
            else if (at < 0 || (at < keys.Length && random.Next(2) == 0))
            {
                at++;
                Assert.Equal(at < keys.Length, cursor.MoveNext());
            }
            else
            {
                at--;
                Assert.Equal(at >= 0, cursor.MovePrevious());
            }
            if (at >= 0 && at < keys.Length)
                CheckEntry(cursor.Key, cursor.Value, cursor.Etag, keys[at], expected);
        }
    }

    private byte[] NewKey()
    {
        var key = new byte[random.Next(60) == 0 ? random.Next(1, KvStoreLimits.KeyBytesMax + 1) : random.Next(1, 7)];
        foreach (ref var letter in key.AsSpan())
            letter = Letters[random.Next(Letters.Length)];
        return key;
    }
}
