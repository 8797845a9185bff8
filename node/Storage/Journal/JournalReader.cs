using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Journal;

/// <summary>Finds records of the live segments and reads their bodies, from memory or from the disk. Owned by a store; writer executor.</summary>
/// <param name="context">The shard's log.</param>
/// <param name="life">Ended by a damaged record that is needed.</param>
/// <param name="pages">Knows what a checkpoint covers.</param>
/// <param name="index">The records.</param>
/// <param name="segments">Reads bodies that are no longer in memory.</param>
internal sealed class JournalReader(StoreContext context, StoreLifecycle life, PageStore pages, JournalIndex index, SegmentReader segments)
{
    /// <summary>Records that one read brings, at most: as many as a mebibyte has blocks.</summary>
    private const int RunRecordsMax = 256;

    /// <summary>Finds the record with this etag, if it is in a live segment or directly before the oldest one.</summary>
    public bool TryFind(Etag etag, out RecordRef record)
    {
        record = index.Find(etag)?.Record ?? index.Base;
        return record.Etag == etag;
    }

    /// <summary>Finds the newest record that is not after this etag, if the live segments reach back so far.</summary>
    public bool TryFindAtOrBefore(Etag etag, out RecordRef record)
    {
        var next = index.FirstAfter(etag);
        record = next > 0 ? index[next - 1].Record : index.Base;
        return record.Etag <= etag;
    }

    /// <summary>The body of a record, valid during this step.</summary>
    /// <exception cref="CorruptStoreException">The segment no longer holds that record.</exception>
    public ReadOnlyMemory<byte> BodyOf(JournalEntry entry) => entry.Body.IsEmpty ? segments.ReadBody(entry) : entry.Body;

    /// <summary>
    /// Adds the bodies that follow a record, in order, up to <paramref name="bytesMax"/> bytes and at least one if there is any. Returns their count, or -1
    /// when the live segments do not reach back so far, or the store has ended.
    /// </summary>
    /// <param name="after">The etag of the record before the first one.</param>
    /// <param name="bytesMax">The most bytes, unless the first body alone has more.</param>
    /// <param name="bodies">Receives the bodies, which stay valid and unchanged.</param>
    public int ReadBodies(Etag after, int bytesMax, List<ReadOnlyMemory<byte>> bodies)
    {
        if (life.HasEnded || after < index.Base.Etag)
            return -1;
        var (count, bytes) = (0, 0L);
        for (var next = index.FirstAfter(after); next < index.Count && (count == 0 || bytes + index[next].Record.BodyBytes <= bytesMax); next++, count++)
        {
            var entry = index[next];
            try
            {
                if (entry.Body.IsEmpty && ReadRun(next, bytesMax - bytes, bodies) is > 0 and var read)
                {
                    for (var more = 0; more < read; more++)
                        bytes += index[next + more].Record.BodyBytes;
                    (next, count) = (next + read - 1, count + read - 1);
                    continue;
                }
                bodies.Add(entry.Body.IsEmpty ? segments.ReadBody(entry) : entry.Share());
            }
            catch (CorruptStoreException damage) when (entry.Record.Etag <= pages.Covered.Etag)
            {
                // Only lagging followers need a covered record. They get a snapshot instead.
                index.RemoveOldest(next + 1);
                StoreLog.CoveredJournalDamaged(context.Log, damage.Message);
                return count == 0 ? -1 : count;
            }
            catch (Exception failure)
            {
                life.Fail(failure);
                return -1;
            }
            bytes += entry.Record.BodyBytes;
        }
        return count;
    }

    /// <summary>Reads some records of a segment by one call. Returns how many; 0 if there are not two that can be read together.</summary>
    private int ReadRun(int first, long bytesMax, List<ReadOnlyMemory<byte>> bodies)
    {
        var entries = new JournalEntry[(int)Math.Min(RunRecordsMax, index.Count - first)];
        for (var place = 0; place < entries.Length; place++)
            entries[place] = index[first + place];
        var count = SegmentReader.RunLength(entries, bytesMax);
        if (count == 1)
            return 0;
        var run = new ReadOnlyMemory<byte>[count];
        count = segments.ReadRun(entries.AsSpan(0, count), run);
        bodies.AddRange(run.AsSpan(0, count));
        return count;
    }
}
