using KvCluster.Storage.Journal;
using KvCluster.Tests.Fuzzing;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>The operations of a record gather in the memory of its body.</summary>
public sealed class RecordDraftTests
{
    // What it has room for at first: a slab, a slab that is too full, memory of the body's own, and that after growing.
    [Theory]
    [InlineData(0, 0)]
    [InlineData(100, 100)]
    [InlineData(12_000, 12_000)]
    [InlineData(100, 3_000)]
    [InlineData(100, 200_000)]
    [InlineData(100_000, 100_000)]
    [InlineData(100_000, 300_000)]
    [InlineData(1_000_000, 1_000_000)]
    [InlineData(1_000_000, 600_000)]
    public void Seal_CopiesNoOperation(int expected, int bytes)
    {
        var draft = new RecordDraft();
        for (var record = 0; record < 10; record++)
        {
            draft.Begin(expected);
            draft.Operations.Append(new byte[bytes]);
            var body = draft.Seal(default, RecordFlags.ShardTime, 1, 1, 0);
            var payload = body.Bytes.Span[RecordBody.Payload(body.Bytes.Span)];
            Assert.Equal(bytes, payload.Length);
            Assert.True(payload == draft.Operations.Written, $"Record {record} has a copy of its operations.");
            draft.End();
        }
    }

    /// <summary>A batch is closed by the request that passes its bound. A second value of a megabyte outgrew the memory, and both were copied.</summary>
    [Fact]
    public void Append_OfABatchThatALargeRequestCloses_CopiesNoOperation()
    {
        using var bench = new ReplicaBench(new(1), StoreBench.SmallOptions with { BatchBytes = 1 << 20 });
        bench.Lead(1);
        for (var put = 0; put < 4; put++)
        {
            var key = StoreBench.Text($"key-{put}");
            _ = bench.Submit(request => request.Put(key, new byte[1_000_000]));
        }
        var isAppended = false;
        var allocated = Allocations.Of(() => isAppended = bench.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out _));
        Assert.True(isAppended);
        Assert.InRange(allocated, 2_000_000, 2_500_000);
    }

    /// <summary>What is kept of the journal in memory is counted by the lengths of the bodies.</summary>
    [Fact]
    public void Seal_MuchLessThanExpected_KeepsNoMoreThanItNeeds()
    {
        var draft = new RecordDraft();
        draft.Begin(1_000_000);
        draft.Operations.Append(new byte[100_000]);
        var allocated = Allocations.Of(() => Assert.Null(draft.Seal(default, RecordFlags.None, 1, 1, 0).Slab));
        Assert.InRange(allocated, 100_000, 100_000 + (2 * Allocations.Context));
    }

    /// <summary>Their bytes are those of <see cref="RecordBody.Encode"/>, whose layout other tests pin, and those that share memory do not touch.</summary>
    [Fact]
    public void Seal_Bodies_AreThoseOfTheFormatAndStayAsTheyAre() => Seeds.Run(50, random =>
    {
        var draft = new RecordDraft();
        var previous = default(RecordRef);
        var bodies = new List<(byte[] Expected, VerifiedBody Body)>();
        for (var record = 0; record < 60; record++)
        {
            var operations = Mutation.RandomBytes(random, random.Next(8) == 0 ? random.Next(100_000) : random.Next(2_000));
            var flags = random.Next(2) == 0 ? RecordFlags.ShardTime : RecordFlags.None;
            draft.Begin(random.Next(4) == 0 ? random.Next(100_000) : operations.Length);
            for (var at = 0; at < operations.Length;)
            {
                var part = Math.Min(1 + random.Next(3_000), operations.Length - at);
                draft.Operations.Append(operations.AsSpan(at, part));
                at += part;
            }
            // Nothing is recorded of some batches.
            if (random.Next(5) > 0)
            {
                var body = draft.Seal(previous, flags, 1, 1, 5, 7);
                bodies.Add((RecordBody.Encode(previous, flags, 1, 1, 5, operations, out var expected, 7), body));
                Assert.Equal(expected, body.Record);
                Assert.True(draft.Operations.Written.SequenceEqual(operations));
                previous = body.Record;
            }
            draft.End();
        }
        Assert.All(bodies, static body => Assert.True(body.Body.Bytes.Span.SequenceEqual(body.Expected)));
    });
}
