using System.Runtime.InteropServices;
using KvCluster.Storage.Journal;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>
/// The memory of a body is used for another one only when the index has dropped it and nobody else was given it. Alone, because the
/// slabs that are free are shared by all stores of the process.
/// </summary>
[Collection(AloneCollection.Name)]
public sealed class BodySlabTests
{
    private const int PayloadBytes = 1_000;

    // More than the free slabs of the process have room for.
    private const int BodiesOfAllSlabs = 8_000;

    [Fact]
    public void Seal_AfterAllBodiesOfASlabWereDropped_UsesItAgain()
    {
        var draft = Begun();
        var first = Seal(draft, default);
        var memory = first.Slab;
        var bodies = new List<VerifiedBody> { first };
        while (bodies[^1].Slab == memory)
            bodies.Add(Seal(draft, bodies[^1].Record));
        // The last one is in another slab.
        foreach (var body in bodies[..^1])
            Durable(body).Drop();
        var others = new HashSet<BodySlab>();
        var last = bodies[^1];
        while (last.Slab != memory)
        {
            Assert.True(others.Count < 1_000, "The slab was not used again.");
            others.Add(last.Slab!);
            last = Seal(draft, last.Record);
        }
    }

    [Fact]
    public void Share_BeforeTheBodyIsDropped_KeepsItsMemory()
    {
        var draft = Begun();
        var shared = Seal(draft, default);
        var entry = Durable(shared);
        var bytes = entry.Share();
        entry.Drop();
        var last = shared;
        for (var count = 0; count < BodiesOfAllSlabs; count++)
        {
            var next = Seal(draft, last.Record);
            Durable(next).Drop();
            last = next;
        }
        Assert.True(VerifiedBody.TryVerify(bytes, out var read));
        Assert.Equal(shared.Record, read.Record);
    }

    [Fact]
    public void Drop_OfABodyThatIsNotDurable_IsABrokenInvariant()
    {
        var body = Seal(new RecordDraft(), default);
        Assert.Throws<InvariantException>(new JournalEntry(body.Record, body.Bytes, body.Slab).Drop);
    }

    [Fact]
    public void Seal_LongBody_HasMemoryOfItsOwn()
    {
        var body = Seal(new RecordDraft(), default, BodySlab.BodyBytesMax);
        Assert.Null(body.Slab);
        Assert.True(VerifiedBody.TryVerify(body.Bytes, out _));
    }

    [Fact]
    public void ReadBodies_ForAFollower_StayAsTheyAreWhenTheIndexHasDroppedThem()
    {
        using var bench = new ReplicaBench(new(1), StoreBench.SmallOptions with { RecentBodyBytesMax = 2_000 });
        bench.Lead(1);
        bench.Commit(bench.Store.Log.Last.Etag);
        var (sent, after) = (new List<ReadOnlyMemory<byte>>(), bench.Store.Log.Last.Etag);
        for (var put = 0; put < 500; put++)
        {
            bench.Append(request => request.Put(StoreBench.Text($"key {put}"), new byte[500]));
            if (put % 3 == 0)
            {
                Assert.True(bench.Store.Reader.ReadBodies(after, 1 << 20, sent) > 0);
                after = bench.Store.Log.Last.Etag;
            }
        }
        Assert.All(sent, static body => Assert.True(VerifiedBody.TryVerify(body, out _)));
        Assert.Equal(499, sent.Count);
    }

    [Fact]
    public void ReadBodies_OfRecentRecords_GivesTheirMemoryAndNoCopy()
    {
        using var bench = new ReplicaBench(new(1));
        bench.Lead(1);
        bench.Commit(bench.Store.Log.Last.Etag);
        var after = bench.Store.Log.Last.Etag;
        bench.Append(request => request.Put("key"u8, new byte[500]));
        Assert.True(bench.BodiesAfter(after).Single().Span == bench.BodiesAfter(after).Single().Span);
    }

    // The first record of each leader took 64 KiB, as long as it was in memory: 3 MB of an idle node that led 47 shards.
    [Fact]
    public void Append_ByAStoreThatHasWrittenLittle_TakesLittleMemory()
    {
        using var bench = new ReplicaBench(new(1), StoreBench.SmallOptions);
        bench.Lead(1);
        bench.Commit(bench.Store.Log.Last.Etag);
        var (sent, after) = (new List<ReadOnlyMemory<byte>>(), bench.Store.Log.Last.Etag);
        bench.Append(request => request.Put(StoreBench.Text("key"), new byte[500]));
        Assert.True(bench.Store.Reader.ReadBodies(after, 1 << 20, sent) > 0);
        Assert.True(MemoryMarshal.TryGetArray(sent[0], out var memory));
        Assert.InRange(memory.Array!.Length, 500, 8 << 10);
    }

    [Fact]
    public void Seal_MoreThanTheFirstSlabHasRoomFor_GoesOnInAnother()
    {
        var draft = new RecordDraft();
        var body = Seal(draft, default);
        var first = body.Slab;
        for (var count = 0; count < 10; count++)
        {
            body = Seal(draft, body.Record);
            Assert.True(VerifiedBody.TryVerify(body.Bytes, out _));
        }
        Assert.NotSame(first, body.Slab);
    }

    // The first slab of a draft is smaller and not used again, and has no room for a second body of these.
    private static RecordDraft Begun()
    {
        var draft = new RecordDraft();
        Seal(draft, default);
        return draft;
    }

    private static VerifiedBody Seal(RecordDraft draft, RecordRef previous, int payloadBytes = PayloadBytes)
    {
        draft.Begin(payloadBytes);
        draft.Operations.Append(new byte[payloadBytes]);
        return draft.Seal(previous, RecordFlags.None, 1, 1, 0);
    }

    private static JournalEntry Durable(VerifiedBody body) => new(body.Record, body.Bytes, body.Slab) { IsDurable = true };
}
