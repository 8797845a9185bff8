using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Journal;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Applies committed records of the journal to the trees and publishes the states, in order. A follower does this in steps of bounded size and time, so
/// that what it receives meanwhile is written first. Several records become one state, because one state per record would copy each page again and again.
/// Owned by a store; writer executor. An exception stops the engine; what was not published is applied again at the next open.
/// </summary>
/// <param name="context">The shard's clock and bounds.</param>
/// <param name="life">Nothing is applied when the store has ended.</param>
/// <param name="pages">The trees.</param>
/// <param name="index">The journal's records.</param>
/// <param name="log">Appends and truncates.</param>
/// <param name="reader">Reads the records.</param>
/// <param name="shardClock">Told the time of each record applied.</param>
/// <param name="ahead">Reads the pages that records need; those that are applied in steps wait for it.</param>
internal sealed class CommittedRecords(
    StoreContext context, StoreLifecycle life, PageStore pages, JournalIndex index, RecordLog log, JournalReader reader, ShardClock shardClock, ReadAhead ahead)
{
    /// <summary>Bytes of bodies that are applied at once, without steps, and the most in one state.</summary>
    public const int StateBytesMax = 1 << 20;

    /// <summary>
    /// One step applies at least this fraction of what waits, so a follower that receives records faster than it applies them reaches a balance.
    /// </summary>
    private const int StepsMax = 16;

    /// <summary>With small records in random order, some hundreds of pages.</summary>
    private const int SmallStepBytes = 32 << 10;

    private readonly PublishedRoots _roots = pages.Roots;

    /// <summary>A state that must end exactly at a record, and what to do when it is published.</summary>
    private (Etag Etag, Action Reached)? _stop;

    /// <summary>The newest record known to be committed, if the journal has it. Never truncated. Not told while this replica leads.</summary>
    public Etag Last { get; private set; }

    /// <summary>Bytes of the bodies that wait to be applied.</summary>
    public long BytesWaiting { get; private set; }

    /// <summary>
    /// The newest record that may be applied in steps. What is applied here and not durable here keeps a checkpoint waiting, so it must be able to become
    /// durable.
    /// </summary>
    public Func<Etag> AppliesTo { private get; set; } = static () => Etag.MaxValue;

    /// <summary>Whether the next records may be applied only later, as <see cref="AppliesTo"/> says.</summary>
    public bool WaitsForDisk => _roots.PublishedEtag >= AppliesTo();

    /// <summary>Whether the next records wait for pages that are being read.</summary>
    public bool WaitsForPages => ahead.IsUnderWay;

    /// <summary>Whether this replica follows and has committed records left to apply.</summary>
    public bool IsApplying => Last > _roots.PublishedEtag && log.OwnEpoch is null && !life.HasEnded;

    /// <summary>
    /// Truncates the journal after a record, which must be in it and not before the committed or the published one. The truncated records are kept in the aside
    /// directory. <see cref="IStoreEvents.Truncated"/> reports when the new segment's header is durable. Appends may follow at once; they are written after
    /// that header.
    /// </summary>
    public void Truncate(Etag lastKept) => life.Guard(() =>
    {
        Invariant.Check(
            log.OwnEpoch is null && lastKept >= _roots.PublishedEtag && lastKept >= Last,
            $"Truncation to {lastKept} while leading, or below the committed {Last} or the published {_roots.PublishedEtag}.");
        log.Truncate(lastKept);
    });

    /// <summary>Marks the records up to an etag, as far as they are in the journal, as ready to be applied.</summary>
    public void Add(Etag etag)
    {
        for (var next = index.FirstAfter(Etag.Max(_roots.PublishedEtag, Last)); next < index.Count && index[next].Record.Etag <= etag; next++)
        {
            Last = index[next].Record.Etag;
            BytesWaiting += index[next].Record.BodyBytes;
        }
    }

    /// <summary>Applies and publishes all that wait.</summary>
    public void ApplyAll() => Apply(long.MaxValue, Timeout.InfiniteTimeSpan, int.MaxValue);

    /// <summary>Applies and publishes what waits if it is little, as far as it goes in one step.</summary>
    public void ApplyFew()
    {
        if (BytesWaiting <= StateBytesMax)
            Apply(long.MaxValue, context.Options.StepTimeMax, int.MaxValue);
    }

    /// <summary>Applies and publishes one step of what waits.</summary>
    /// <param name="pagesMax">Pages after which the step ends, because memory is short. The record that passes them is still applied, as records are
    /// whole.</param>
    public void ApplyStep(int pagesMax) =>
        Apply(pagesMax < int.MaxValue ? SmallStepBytes : Math.Max(StateBytesMax, BytesWaiting / StepsMax), context.Options.StepTimeMax, pagesMax);

    /// <summary>
    /// Applies the prepared records behind the published state as one unpublished state. One is enough, since none of them is committed before the first
    /// record of the next epoch.
    /// </summary>
    public void ApplyPrepared()
    {
        if (index.FirstAfter(_roots.PublishedEtag) is var first && first < index.Count)
            ApplyAndSeal(first, index.Count, Timeout.InfiniteTimeSpan, int.MaxValue);
    }

    /// <summary>Calls back when a state is published that has exactly the records up to an etag, perhaps at once. Replaces an earlier call.</summary>
    public void StopAt(Etag etag, Action reached)
    {
        _stop = (etag, reached);
        ReachStop();
    }

    /// <summary>Forgets <see cref="StopAt"/>.</summary>
    public void DropStop() => _stop = null;

    /// <summary>
    /// Applies up to <paramref name="bytesMax"/> bytes of committed records, at least one record if there is any, in states of bounded size. Begins no
    /// further state once <paramref name="timeMax"/> has passed or <paramref name="pagesMax"/> pages are made.
    /// </summary>
    private void Apply(long bytesMax, TimeSpan timeMax, int pagesMax)
    {
        var left = bytesMax;
        var isTimed = timeMax != Timeout.InfiniteTimeSpan;
        var began = context.Time.GetTimestamp();
        var upTo = isTimed ? Etag.Min(Last, AppliesTo()) : Last;
        for (var first = index.FirstAfter(_roots.PublishedEtag); left > 0 && first < index.Count && index[first].Record.Etag <= upTo;)
        {
            var stateEnd = EndOfState(first, Math.Min(left, StateBytesMax), upTo);
            if (isTimed && !MayBegin(first, stateEnd))
                return;
            var (end, bytes, pagesMade) = ApplyAndSeal(first, stateEnd, timeMax, pagesMax);
            _roots.Publish(index[end - 1].Record.Etag);
            BytesWaiting -= bytes;
            left -= bytes;
            pagesMax -= pagesMade;
            first = end;
            ReachStop();
            if (pagesMax <= 0 || (isTimed && context.Time.GetElapsedTime(began) >= timeMax))
                return;
        }
    }

    /// <summary>Whether the pages that some records need are in memory, or few. Records whose bodies have left memory count as needing none.</summary>
    private bool MayBegin(int first, int end)
    {
        var keys = 0;
        for (var next = first; next < end; next++)
            keys += index[next].Body.IsEmpty ? 0 : KeysOf(index[next].Body.Span);
        if (ahead.AreFew(keys))
            return true;
        var last = index[end - 1].Record.Etag;
        return ahead.MayBegin(new UInt128(last.Epoch, last.Change), keys, KeysOf(first, end));
    }

    private PageKeysFill KeysOf(int first, int end)
    {
        var bodies = new ReadOnlyMemory<byte>[end - first];
        for (var next = first; next < end; next++)
            bodies[next - first] = index[next].Share();
        return new RecordKeys(bodies).Fill;
    }

    // An operation that is alone may delete a range or a set, and then reads more than a key.
    private static int KeysOf(ReadOnlySpan<byte> body) => RecordBody.OperationCount(body) is not 1 and var count ? count : ReadAhead.KeysMin;

    private int EndOfState(int first, long bytesMax, Etag upTo)
    {
        var bytes = 0L;
        var last = _stop?.Etag ?? upTo;
        var end = first;
        while (end < index.Count
            && index[end].Record.Etag <= upTo
            && (end == first || (index[end].Record.Etag <= last && bytes + index[end].Record.BodyBytes <= bytesMax)))
            bytes += index[end++].Record.BodyBytes;
        return end;
    }

    private void ReachStop()
    {
        if (_stop is not { } stop || stop.Etag != _roots.PublishedEtag)
            return;
        _stop = null;
        stop.Reached();
    }

    /// <summary>
    /// Applies records as one state, which gets the etag of the last one. Once <paramref name="timeMax"/> has passed or so many pages are made, the state ends
    /// early: pages may have to be read from disk, and a small record may delete a large range.
    /// </summary>
    private (int End, long Bytes, int PagesMade) ApplyAndSeal(int first, int end, TimeSpan timeMax, int pagesMax)
    {
        var batch = pages.Begin();
        var (step, isTimed) = (new StepBound(context.Time, context.Options), timeMax != Timeout.InfiniteTimeSpan);
        // Without a bound in time there may be as many records as a crash leaves. A step has few, which would be spread over as many leaves in any order.
        var gathered = isTimed ? null : new GatheredChanges(index.BytesOf(first, end));
        var next = first;
        var bytes = 0L;
        try
        {
            do
            {
                if (context.Unreadable(index[next].Record) is { } why)
                    throw new UnreadableRecordException(why);
                var body = reader.BodyOf(index[next]).Span;
                RecordApplier.Apply(batch, body, gathered);
                shardClock.Saw(batch.ShardTime, batch.WallTime);
                bytes += index[next++].Record.BodyBytes;
            }
            while (next < end && batch.PagesMade < pagesMax && (!isTimed || (!step.HasReadEnough && context.Time.GetElapsedTime(step.Began) < timeMax)));
            gathered?.ApplyTo(batch);
        }
        catch
        {
            _roots.Abort(batch);
            throw;
        }
        if (step.HasReadEnough)
            ahead.BecomeCold();
        var made = batch.PagesMade;
        _roots.Seal(batch, index[next - 1].Record.Etag);
        return (next, bytes, made);
    }
}
