using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Hosting;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>
/// The reads that are more than keys: Get of the nearest key, List, Count, SetScan, SetCount and SetIntersect on encoded requests. Called by
/// <see cref="KvCalls"/>, which answers exceptions thrown before the first wait. Trees are read where <see cref="ReadThreads"/> decides, in turns, so that a
/// long query holds up no other read.
/// </summary>
/// <param name="memory">What intersections hold.</param>
/// <param name="clock">For deadlines, turns and the ages of snapshots.</param>
internal sealed class KvQueries(ShardLookup lookup, ReadOpener opener, ReadThreads threads, KeptSnapshots kept, QueryMemory memory, TimeProvider clock)
{
    /// <summary>Length of a turn. Much longer than a thread switch.</summary>
    private static readonly TimeSpan TurnTime = TimeSpan.FromMilliseconds(2);

    private readonly long _turnTicks = (long)(TurnTime.TotalSeconds * clock.TimestampFrequency);

    public ValueTask GetNearestAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var query = new NearestQuery(request, out var options);
        return query.Check() is { } bad ? Refusals.Send(sink, bad) : RunAsync(query, query.Key, options, target, sink);
    }

    public ValueTask CountAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var query = new CountQuery(request, out var options);
        return query.Check() is { } bad ? Refusals.Send(sink, bad) : RunAsync(query, query.Bounds.Lower.Span, options, target, sink);
    }

    public ValueTask SetScanAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var query = new SetScanQuery(request, out var options);
        return query.Check() is { } bad ? Refusals.Send(sink, bad) : RunAsync(query, query.Key, options, target, sink);
    }

    public ValueTask SetCountAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var query = new SetCountQuery(request, out var options);
        return RequestRules.CheckKey(query.Key) is { } bad ? Refusals.Send(sink, bad) : RunAsync(query, query.Key, options, target, sink);
    }

    public ValueTask SetIntersectAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var query = new SetIntersectQuery(request, memory, out var options);
        return query.Check() is { } bad ? Refusals.Send(sink, bad) : RunAsync(query, query.Keys[0], options, target, sink);
    }

    public ValueTask ListAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var query = new ListQuery(request, out var options);
        if (query.Check() is { } bad)
            return Refusals.Send(sink, bad);
        if (ReadQuery.TryRead(options, out var read) is { } badRead)
            return Refusals.Send(sink, badRead);
        if (query.Token != 0)
        {
            // The snapshot of an earlier page is as good here as when it was opened, whoever leads by now.
            if (lookup.FindForScan(query.IsReverse, query.Bounds.Lower.Span, query.Bounds.Upper.Span, isForLeader: false, out var notHere) is not { } holder)
                return Refusals.Send(sink, notHere);
            if (kept.TryTake(query.Token, holder.Shard, out var held))
                return AnswerAsync(query, holder, held, target, sink);
            if (!query.IsNewerGood)
                return Refusals.Send(sink, ApiErrors.SnapshotNotKept);
            query.TakeNewer();
        }
        return lookup.FindForScan(query.IsReverse, query.Bounds.Lower.Span, query.Bounds.Upper.Span, read.Mode.IsForLeader(), out var refusal) is { } shard
            ? RunAsync(query, shard, read, options, target, sink)
            : Refusals.Send(sink, refusal);
    }

    private ValueTask RunAsync<TSink>(SnapshotQuery query, ReadOnlySpan<byte> key, ReadOnlySpan<byte> options, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        if (ReadQuery.TryRead(options, out var read) is { } bad)
            return Refusals.Send(sink, bad);
        if (lookup.Find(key, target, read.Mode.IsForLeader(), out var refusal) is not { } shard)
            return Refusals.Send(sink, refusal);
        return query.CheckIn(shard, lookup) is { } elsewhere ? Refusals.Send(sink, elsewhere) : RunAsync(query, shard, read, options, target, sink);
    }

    private ValueTask RunAsync<TSink>(SnapshotQuery query, HostedShard shard, ReadQuery read, ReadOnlySpan<byte> options, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink => read.TryIn(shard.InLineage, options, out read) is { } ofAnother
            ? Refusals.Send(sink, ofAnother)
            : RunAsync(query, shard, read, target, sink);

    private async ValueTask RunAsync<TSink>(SnapshotQuery query, HostedShard shard, ReadQuery read, CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        using var wait = target.BeginWait();
        try
        {
            var opened = await opener.OpenAsync(shard, read, target.DeadlineTimestamp, wait.Token).ConfigureAwait(false);
            if (opened.ApiError is { } refusal)
            {
                sink.Refuse(refusal);
                return;
            }
            await AnswerAsync(query, shard, new KeptSnapshots.Kept(shard.InLineage, opened, clock.GetTimestamp()), target, sink).ConfigureAwait(false);
        }
        catch (Exception failure) when (ApiErrors.Of(failure) is { } refusal)
        {
            sink.Refuse(refusal);
        }
    }

    /// <summary>Answers from a snapshot, which ends with this or is kept for the next page.</summary>
    private async ValueTask AnswerAsync<TSink>(SnapshotQuery query, HostedShard shard, KeptSnapshots.Kept held, CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var answer = MessageBytes.Rent();
        // A page whose answer is lost or too large for its way is asked for again, with the token of the page before.
        var token = query.TokenBefore;
        try
        {
            query.Begin(answer, shard, held.ReadNow(clock), kept.TimeLeft(held));
            // If the thread that began the call reads a whole stream, the query runs elsewhere from its first turn on.
            for (var isElsewhere = target.ReadsElsewhere; ; isElsewhere = true)
            {
                var turn = await threads.EnterAsync(isElsewhere);
                try
                {
                    if (query.Step(clock, clock.GetTimestamp() + _turnTicks))
                        break;
                }
                finally
                {
                    await turn.LeaveAsync();
                }
                if (RefusalBetweenTurns(held, target) is { } refusal)
                {
                    sink.Refuse(refusal);
                    return;
                }
            }
            if (query.Refusal is { } failed)
                sink.Refuse(failed);
            else if (answer.Count > sink.ReplyBytesMax)
                sink.Refuse(ApiErrors.ReplyLarge(answer.Count));
            else if (sink.Answer(new EncodedAnswer(answer.Written)) is null && query.TokenForMore != 0)
                token = query.TokenForMore;
        }
        catch (Exception failure) when (ApiErrors.Of(failure) is { } refusal)
        {
            sink.Refuse(refusal);
        }
        finally
        {
            query.End();
            answer.Return();
            if (token != 0)
                kept.Keep(token, held);
            else
                held.Read.Snapshot.Dispose();
        }
    }

    private ApiError? RefusalBetweenTurns(in KeptSnapshots.Kept held, in CallTarget target)
    {
        if (target.CancellationToken.IsCancellationRequested)
            return ApiErrors.Cancelled;
        if (target.DeadlineTimestamp != 0 && clock.GetTimestamp() > target.DeadlineTimestamp)
            return ApiErrors.DeadlinePassed;
        return kept.IsTooOld(held) ? ApiErrors.ReadTooSlow : null;
    }
}
