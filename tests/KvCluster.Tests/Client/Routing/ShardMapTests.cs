using System.Text;
using Google.Protobuf;
using KvCluster.Client.Routing;
using KvCluster.Client.Telemetry;
using KvCluster.V1;
using Xunit.Abstractions;
using ShardMap = KvCluster.Client.Routing.ShardMap;

namespace KvCluster.Tests.Client.Routing;

/// <summary>Compares the packed map and the last hit in front of it with a linear search through all routes.</summary>
public sealed class ShardMapTests(ITestOutputHelper output)
{
    [Fact]
    public void Find_InRandomMaps_FindsWhatALinearSearchFinds()
    {
        var random = Seeds.Next(output);
        for (var round = 0; round < 300; round++)
        {
            var routes = RandomRoutes(random, holes: round % 3 == 0);
            var map = new ShardMap(routes.OrderBy(_ => random.Next()));
            Assert.Equal(routes.Select(route => route.Shard), map.Routes.Select(route => route.Shard));
            for (var probe = 0; probe < 200; probe++)
            {
                var key = RandomKey(random, routes);
                Assert.Same(Linear(routes, key), map.Find(key));
                Assert.True(map.TryFindNear(map.FindSlot(key), key, out var found));
                Assert.Equal(map.FindSlot(key), found);
            }
        }
    }

    [Fact]
    public void FindSlot_OfTheLastHit_IsNeverWrong()
    {
        var random = Seeds.Next(output);
        for (var round = 0; round < 100; round++)
        {
            var routes = RandomRoutes(random, holes: round % 3 == 0);
            var map = new ShardMap(routes);
            using var counts = new RouteCounts();
            var last = new LastHit(map, counts);
            for (var probe = 0; probe < 1_000; probe++)
            {
                var key = RandomKey(random, routes);
                Assert.Equal(map.FindSlot(key), last.FindSlot(key));
            }
            Assert.InRange(counts.Hits + counts.Misses, 990, 1_000);
        }
    }

    [Fact]
    public void FindSlot_OfKeysInOrder_NeverSearchesTheMap()
    {
        var map = new ShardMap([Route(1, "", "b/"), Route(2, "b/", "c/"), Route(3, "c/", "d/"), Route(4, "d/", "")]);
        using var counts = new RouteCounts();
        var last = new LastHit(map, counts);
        var slots = from letter in "abcde" from number in Enumerable.Range(0, 25) select last.FindSlot(Encoding.UTF8.GetBytes($"{letter}/orders/{number:00}"));
        Assert.Equal(Enumerable.Range(0, 125).Select(static index => Math.Min(index / 25, 3)), slots);
        // This thread may have been moved to a processor that has seen none of these keys.
        Assert.Equal(125, counts.Hits + counts.Misses);
        Assert.True(counts.Misses <= 4 * Environment.ProcessorCount, $"{counts.Misses} searches");
    }

    /// <summary>Comparing each key with the last one's boundaries would fetch them from memory, for nothing.</summary>
    [Fact]
    public void FindSlot_OfKeysFarApart_StopsGuessingAndStartsAgain()
    {
        var map = new ShardMap([Route(1, "", "b/"), Route(2, "b/", "c/"), Route(3, "c/", "d/"), Route(4, "d/", "")]);
        using var counts = new RouteCounts();
        var last = new LastHit(map, counts);
        for (var pair = 0; pair < 100; pair++)
        {
            Assert.Equal(3, last.FindSlot("e/1"u8));
            Assert.Equal(0, last.FindSlot("a/1"u8));
        }
        // A processor that this thread is moved to makes its first guesses, and one of them may be right.
        var misses = counts.Misses;
        Assert.InRange(misses, 200 - Environment.ProcessorCount, 200);
        for (var key = 0; key < 100; key++)
            Assert.Equal(1, last.FindSlot("b/1"u8));
        Assert.InRange(counts.Misses - misses, 1, 2 * Environment.ProcessorCount);
    }

    [Fact]
    public void FindSlot_OfKeysWithASplitPath_StaysCorrect()
    {
        var map = new ShardMap([Route(1, "", "b/m"), Route(2, "b/m", "")]);
        using var counts = new RouteCounts();
        var last = new LastHit(map, counts);
        foreach (var key in (string[])["b/a", "b/z", "b/l", "b/m", "b/", "c/x", "b/n"])
            Assert.Equal(map.FindSlot(Encoding.UTF8.GetBytes(key)), last.FindSlot(Encoding.UTF8.GetBytes(key)));
    }

    [Fact]
    public void FindSlot_Always_AllocatesNothing()
    {
        var random = Seeds.Next(output);
        var routes = RandomRoutes(random, holes: false);
        var keys = Enumerable.Range(0, 1_000).Select(_ => RandomKey(random, routes)).ToArray();
        using var counts = new RouteCounts();
        var last = new LastHit(new ShardMap(routes), counts);
        last.FindSlot(keys[0]);
        var allocated = Allocations.Of(() =>
        {
            foreach (var key in keys)
                last.FindSlot(key);
        });
        Assert.InRange(allocated, 0, Allocations.Context);
    }

    [Fact]
    public void FindBefore_AtEveryBoundary_FindsThePrecedingShard()
    {
        var map = new ShardMap([Route(1, "", "b"), Route(2, "b", "c"), Route(3, "c", "")]);
        Assert.Equal(3u, map.FindBefore([])!.Shard);
        Assert.Equal(3u, map.FindBefore("d"u8)!.Shard);
        Assert.Equal(2u, map.FindBefore("c"u8)!.Shard);
        Assert.Equal(2u, map.FindBefore("b\0"u8)!.Shard);
        Assert.Equal(1u, map.FindBefore("b"u8)!.Shard);
        Assert.Equal(1u, map.FindBefore("a"u8)!.Shard);
    }

    [Fact]
    public void TryReplace_WithADifferentRange_IsRefused()
    {
        var map = new ShardMap([Route(1, "", "b"), Route(2, "b", "")]);
        Assert.False(map.TryReplace(Route(2, "b", "c")));
        Assert.False(map.TryReplace(Route(2, "c", "")));
        Assert.False(map.TryReplace(Route(3, "b", "")));
        var route = Route(2, "b", "");
        Assert.True(map.TryReplace(route));
        Assert.Same(route, map.Find("x"u8));
    }

    internal static ShardRoute Route(uint shard, string start, string end, ulong epoch = 1, uint leader = 1, ulong generation = 1) => new()
    {
        Shard = shard,
        Start = ByteString.CopyFromUtf8(start),
        End = ByteString.CopyFromUtf8(end),
        Epoch = epoch,
        Leader = leader,
        Generation = generation,
    };

    private static ShardRoute? Linear(ShardRoute[] routes, byte[] key) => routes.SingleOrDefault(route =>
        key.AsSpan().SequenceCompareTo(route.Start.Span) >= 0 && (route.End.IsEmpty || key.AsSpan().SequenceCompareTo(route.End.Span) < 0));

    // Paths with long shared prefixes, keys that are prefixes of others, and bytes at both ends of the range.
    private static byte[] RandomBytes(Random random)
    {
        string[] parts = ["orders/", "orders/2026/", "a/very/long/path/that/all/share/", "x", "/", "\0", "\0\0\0\0\0\0\0\0"];
        var bytes = new List<byte>();
        for (var count = random.Next(4); count >= 0; count--)
            bytes.AddRange(Encoding.UTF8.GetBytes(parts[random.Next(parts.Length)]));
        for (var count = random.Next(4); count > 0; count--)
            bytes.Add((byte)(random.Next(4) switch { 0 => 0, 1 => 255, 2 => '/', _ => random.Next(256) }));
        return [.. bytes];
    }

    private static ShardRoute[] RandomRoutes(Random random, bool holes)
    {
        var comparer = Comparer<byte[]>.Create((a, b) => a.AsSpan().SequenceCompareTo(b));
        var bounds = new SortedSet<byte[]>(Enumerable.Range(0, random.Next(1, 400)).Select(_ => RandomBytes(random)), comparer).ToArray();
        var routes = new List<ShardRoute>();
        for (var index = 0; index <= bounds.Length; index++)
        {
            if (holes && random.Next(4) == 0)
                continue;
            routes.Add(new ShardRoute
            {
                Shard = (uint)index + 1,
                Start = index == 0 ? ByteString.Empty : ByteString.CopyFrom(bounds[index - 1]),
                End = index == bounds.Length ? ByteString.Empty : ByteString.CopyFrom(bounds[index]),
            });
        }
        return [.. routes];
    }

    private static byte[] RandomKey(Random random, ShardRoute[] routes)
    {
        if (routes.Length == 0 || random.Next(3) == 0)
            return RandomBytes(random);
        var start = routes[random.Next(routes.Length)].Start.ToByteArray();
        return random.Next(3) switch
        {
            0 => start,
            1 => [.. start, 0],
            _ => [.. start.Take(Math.Max(0, start.Length - 1)), (byte)random.Next(256)],
        };
    }
}
