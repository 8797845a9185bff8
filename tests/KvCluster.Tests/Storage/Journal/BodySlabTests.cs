using System.Runtime.InteropServices;
using KvCluster.Storage.Encoding;
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
        BodySlab? slab = null;
        var first = Seal(ref slab, default);
        var memory = first.Slab;
        var bodies = new List<VerifiedBody> { first };
        while (slab == memory)
            bodies.Add(Seal(ref slab, bodies[^1].Record));
        // The last one is in another slab.
        foreach (var body in bodies[..^1])
            Durable(body).Drop();
        var others = new HashSet<BodySlab>();
        var last = bodies[^1];
        while (last.Slab != memory)
        {
            Assert.True(others.Count < 1_000, "The slab was not used again.");
            others.Add(last.Slab!);
            last = Seal(ref slab, last.Record);
        }
    }

    [Fact]
    public void Share_BeforeTheBodyIsDropped_KeepsItsMemory()
    {
        BodySlab? slab = null;
        var shared = Seal(ref slab, default);
        var entry = Durable(shared);
        var bytes = entry.Share();
        entry.Drop();
        var last = shared;
        for (var count = 0; count < BodiesOfAllSlabs; count++)
        {
            var next = Seal(ref slab, last.Record);
            Durable(next).Drop();
            last = next;
        }
        Assert.True(VerifiedBody.TryVerify(bytes, out var read));
        Assert.Equal(shared.Record, read.Record);
    }

    [Fact]
    public void Drop_OfABodyThatIsNotDurable_IsABrokenInvariant()
    {
        BodySlab? slab = null;
        var body = Seal(ref slab, default);
        Assert.Throws<InvariantException>(new JournalEntry(body.Record, body.Bytes, body.Slab).Drop);
    }

    [Fact]
    public void Seal_LongBody_HasMemoryOfItsOwn()
    {
        BodySlab? slab = null;
        var body = VerifiedBody.Seal(ref slab, default, RecordFlags.None, 1, 1, 0, new byte[BodySlab.BodyBytesMax]);
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
        var slab = BodySlab.First();
        var first = slab;
        var body = Seal(ref slab, default);
        Assert.Same(first, body.Slab);
        for (var count = 0; count < 10; count++)
        {
            body = Seal(ref slab, body.Record);
            Assert.True(VerifiedBody.TryVerify(body.Bytes, out _));
        }
        Assert.NotSame(first, body.Slab);
    }

    private static VerifiedBody Seal(ref BodySlab? slab, RecordRef previous) =>
        VerifiedBody.Seal(ref slab, previous, RecordFlags.None, 1, 1, 0, new byte[PayloadBytes]);

    private static JournalEntry Durable(VerifiedBody body) => new(body.Record, body.Bytes, body.Slab) { IsDurable = true };
}
