using KvCluster.Node.Api;
using KvCluster.Storage.Trees;
using Xunit.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>
/// What an intersection holds while it is counted in facets: it asks for memory before it takes it, and everything that takes long is done in steps.
/// </summary>
public sealed class FacetMemoryTests(ITestOutputHelper output)
{
    /// <summary>Each member took 128 bytes, and those of a set of 4 million 0.5 to 1 GiB, which nobody counted.</summary>
    [Fact]
    public void MemberList_OfManyShortMembers_TakesFewBytesForEachAndAsksForThemFirst()
    {
        const int Members = 300_000;
        var taken = 0L;
        using var list = new MemberList(bytes =>
        {
            taken += bytes;
            return true;
        });
        Span<byte> member = stackalloc byte[sizeof(int)];
        for (var number = 0; number < Members; number++)
        {
            System.Buffers.Binary.BinaryPrimitives.WriteInt32BigEndian(member, number);
            Assert.True(list.TryAdd(member));
        }
        Assert.InRange(taken, Members * 6, (Members * 6) + (300 << 10));
        Assert.True(list.TryBeginCounts());
        Assert.InRange(taken, Members * 16, Members * 40);
        var steps = 1;
        while (!list.Prepare())
            steps++;
        Assert.InRange(steps, Members / 4_096, Members / 1_024);
        Assert.Equal(Members, list.Count);
    }

    [Fact]
    public void MemberList_ThatMayNotTakeMore_SaysSo()
    {
        var left = 100_000L;
        using var list = new MemberList(bytes => (left -= bytes) >= 0);
        var member = new byte[KvLimits.MemberBytesMax];
        var added = 0;
        while (list.TryAdd(member))
            added++;
        Assert.InRange(added, 70, 95);
    }

    /// <summary>Against all facets sorted: the largest, and among equals those with the least keys, however many there are.</summary>
    [Fact]
    public void FacetRanking_OfRandomFacets_KeepsTheLargestInOrderAndReturnsItsMemory()
    {
        var random = Seeds.Next(output);
        for (var round = 0; round < 50; round++)
        {
            var (held, most) = (0L, random.Next(1, 12));
            var ranking = new FacetRanking(most, bytes =>
            {
                held += bytes;
                return true;
            });
            for (var prefix = 0; prefix < 2; prefix++)
            {
                var facets = Enumerable.Range(0, random.Next(60)).Select(index => (Key: $"key-{index:d4}", Count: (ulong)random.Next(1, 6))).ToList();
                foreach (var (key, count) in facets)
                    Assert.True(ranking.TryAdd(System.Text.Encoding.UTF8.GetBytes(key), count));
                Assert.InRange(held, 0, most * 200);
                while (!ranking.Rank())
                {
                }
                var bytes = new byte[ranking.MessageBytesOf()];
                var writer = new KvCluster.Wire.WireWriter(bytes);
                ranking.WriteTo(ref writer);
                var told = V1.Facets.Parser.ParseFrom(bytes);
                Assert.Equal(facets.OrderByDescending(facet => facet.Count).Take(most), told.Sets.Select(facet => (facet.Key.ToStringUtf8(), facet.Count)));
                Assert.Equal((ulong)facets.Count, told.SetsFound);
                Assert.Equal(0, held);
            }
        }
    }

    [Fact]
    public void QueryMemory_OfOneQuery_LeavesAPartToSmallOnesAndBoundsTheirNumber()
    {
        var memory = QueryMemory.For(256);
        Assert.Equal(48L << 20, memory.BytesOfOneMax);
        Assert.True(memory.TryTake(48 << 20, 0));
        Assert.False(memory.TryTake(1 << 20, 48 << 20));
        Assert.True(memory.TryTake(60 << 10, 0));
        memory.GiveBack((48 << 20) + (60 << 10));
        Assert.Equal(0, memory.Taken);
        for (var query = 0; query < QueryMemory.FacetedMax; query++)
            Assert.True(memory.TryEnterFaceted());
        Assert.False(memory.TryEnterFaceted());
        memory.LeaveFaceted();
        Assert.True(memory.TryEnterFaceted());
    }
}
