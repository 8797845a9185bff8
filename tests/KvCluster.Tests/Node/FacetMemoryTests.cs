using System.Globalization;
using Google.Protobuf;
using KvCluster.Internal.V1;
using KvCluster.Node.Api.Reads;
using KvCluster.Node.Hosting;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Trees;
using KvCluster.Tests.Storage.Store;
using KvCluster.V1;
using KvCluster.Wire;
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
                var writer = new WireWriter(bytes);
                ranking.WriteTo(ref writer);
                var told = V1.Facets.Parser.ParseFrom(bytes);
                Assert.Equal(facets.OrderByDescending(facet => facet.Count).Take(most), told.Sets.Select(facet => (facet.Key.ToStringUtf8(), facet.Count)));
                Assert.Equal((ulong)facets.Count, told.SetsFound);
                Assert.Equal(0, held);
            }
        }
    }

    /// <summary>
    /// A turn that is over ends at the next look at the clock. To prepare the list, to count one large set and to order the facets took as long as they took,
    /// and other reads waited.
    /// </summary>
    [Fact]
    public void SetIntersect_WhoseTurnIsOver_YieldsInEachPhase()
    {
        const int MembersOfAStep = 4_096;
        const int Steps = 3;
        const int Members = Steps * MembersOfAStep;
        const int Sets = 2_000;
        const int FacetsOfAStep = 512;
        using var store = new StoreBench();
        store.Open();
        AddMembers(store, "common", Members);
        AddMembers(store, "as-many/set", Members);
        AddMembers(store, "more/set", Members + 1);
        var few = store.Write(static request =>
        {
            for (var number = 0; number < Sets; number++)
                request.SetAdd(StoreBench.Text(string.Create(CultureInfo.InvariantCulture, $"few/{number:d4}")), Member(number));
        });
        Assert.Equal(WriteOutcome.Applied, few.Outcome);

        var counted = TurnsOf(store, facetsMax: 1);
        Assert.InRange(counted, Members / 256, Members);
        // The list is prepared, although there is no set to compare it with.
        var prepared = TurnsOf(store, facetsMax: 1, "none/");
        Assert.InRange(prepared - counted, Steps, Members);
        // The set is read through, or the list's members are searched in it.
        Assert.InRange(TurnsOf(store, facetsMax: 1, "as-many/") - prepared, Steps, Members);
        Assert.InRange(TurnsOf(store, facetsMax: 1, "more/") - prepared, Steps, Members);
        var countedFew = TurnsOf(store, facetsMax: 1, "few/");
        Assert.InRange(countedFew - prepared, Sets, Members);
        Assert.InRange(TurnsOf(store, facetsMax: Sets, "few/") - countedFew, Sets / FacetsOfAStep, Sets);
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

    // How many turns an intersection takes if each is over when it looks at the clock.
    private static int TurnsOf(StoreBench store, uint facetsMax, params string[] prefixes)
    {
        var request = new SetIntersectRequest
        {
            Keys = { ByteString.CopyFromUtf8("common") },
            FacetPrefixes = { prefixes.Select(ByteString.CopyFromUtf8) },
            FacetsMax = facetsMax,
        };
        var query = new SetIntersectQuery(request.ToByteArray(), QueryMemory.For(CallMemory.MebibytesDefault), out _);
        var answer = MessageBytes.Rent();
        using var snapshot = store.Standalone.OpenSnapshot();
        try
        {
            var shard = new HostedShard(new ShardRecord(), new(1), replica: null, failure: "", isLost: false);
            query.Begin(answer, shard, new OpenedRead(snapshot, AgeUs: null, ApiError: null));
            var turns = 1;
            while (!query.Step(store.Time, until: 0))
                turns++;
            Assert.Null(query.Refusal);
            Assert.Equal(prefixes.Length, SetIntersectResponse.Parser.ParseFrom(answer.Written).Facets.Count);
            return turns;
        }
        finally
        {
            query.End();
            answer.Return();
        }
    }

    private static void AddMembers(StoreBench store, string set, int count)
    {
        foreach (var part in Enumerable.Range(0, count).Chunk(4_096))
        {
            var added = store.Write(request =>
            {
                foreach (var number in part)
                    request.SetAdd(StoreBench.Text(set), Member(number));
            });
            Assert.Equal(WriteOutcome.Applied, added.Outcome);
        }
    }

    private static byte[] Member(int number) => StoreBench.Text(string.Create(CultureInfo.InvariantCulture, $"{number:d8}"));
}
