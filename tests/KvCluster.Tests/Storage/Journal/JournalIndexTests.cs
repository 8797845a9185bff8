using KvCluster.Storage.Journal;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>The index of the journal's records: what it has after any order of additions and removals, and how much work the removals are.</summary>
public sealed class JournalIndexTests
{
    private const int BodyBytes = 100;

    /// <summary>
    /// Each removed record was looked at, and all that stayed were moved: milliseconds of the writer for a journal of many small records. Now the records of
    /// whole pieces are removed with their piece.
    /// </summary>
    [Fact]
    public void RemoveOldest_OfManyRecords_LooksAtFew()
    {
        const int Records = 100_000;
        var index = new JournalIndex(default, long.MaxValue);
        var entries = Append(index, 0, Records);
        index.RemoveOldest(Records - 5_000);
        Assert.Equal((5_000, 5_000L * BodyBytes), (index.Count, index.BodyBytes));
        // The bodies of those that it looked at are dropped.
        Assert.InRange(entries.Count(static entry => entry.Body.IsEmpty), 0, 1_024);
        Assert.InRange(Allocations.Of(() => index.RemoveOldest(5_000)), 0, 1_024 + Allocations.Context);
        Assert.Equal((0, 0L), (index.Count, index.BodyBytes));
        Assert.Equal(entries[^1].Record, index.Last);
    }

    [Fact]
    public void RandomOperations_MatchAList() => Seeds.Run(20, random =>
    {
        var bodiesMax = random.Next(4_000) * BodyBytes;
        var index = new JournalIndex(default, bodiesMax);
        var (model, first, next) = (new List<JournalEntry>(), default(RecordRef), 0);
        for (var step = 0; step < 60; step++)
        {
            switch (random.Next(4))
            {
                case 0 when model.Count > 0:
                    var oldest = random.Next(model.Count + 1);
                    index.RemoveOldest(oldest);
                    first = oldest > 0 ? model[oldest - 1].Record : first;
                    model.RemoveRange(0, oldest);
                    break;
                case 1 when model.Count > 0:
                    var from = random.Next(Math.Max(0, model.Count - 2_000), model.Count + 1);
                    Assert.Equal(model[from..], index.RemoveFrom(from));
                    model.RemoveRange(from, model.Count - from);
                    next = (int)index.Last.Change;
                    break;
                default:
                    var count = random.Next(3_000);
                    model.AddRange(Append(index, next, count));
                    next += count;
                    break;
            }
            Assert.Equal(model.Count, index.Count);
            Assert.Equal(first, index.Base);
            Assert.Equal(model.Count > 0 ? model[^1].Record : first, index.Last);
            Assert.Equal(model.Sum(static entry => (long)entry.Body.Length), index.BodyBytes);
            Assert.InRange(index.BodyBytes, 0, bodiesMax);
            Assert.Equal(model.Sum(static entry => (long)entry.Bytes), index.BytesOf(0, model.Count));
            for (var look = 0; look < 20 && model.Count > 0; look++)
            {
                var at = random.Next(model.Count);
                Assert.Same(model[at], index[at]);
                Assert.Same(model[at], index.Find(model[at].Record.Etag));
                Assert.Equal(at + 1, index.FirstAfter(model[at].Record.Etag));
            }
        }
    });

    private static List<JournalEntry> Append(JournalIndex index, int after, int count)
    {
        var entries = new List<JournalEntry>(count);
        for (var change = after + 1; change <= after + count; change++)
        {
            var last = index.Last;
            var record = new RecordRef(new Etag(1, (ulong)change), last.Etag, (uint)change, last.Checksum, BodyBytes, RecordFlags.None);
            entries.Add(new JournalEntry(record, new byte[BodyBytes]) { Segment = 1, IsDurable = true });
            index.Append(entries[^1]);
        }
        return entries;
    }
}
