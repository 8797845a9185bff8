using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Hosting;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>
/// Get and GetMany on encoded requests. Called by <see cref="KvCalls"/>, which answers exceptions thrown before the first wait. Trees are read where
/// <see cref="ReadThreads"/> decides. A GetMany of many keys is read in turns. Between them it holds no place, so that other reads run, and it ends if its
/// caller has gone.
/// </summary>
/// <param name="queries">Runs a Get of the nearest key.</param>
/// <param name="clock">For deadlines and turns.</param>
internal sealed class KvReads(ShardLookup lookup, ReadOpener opener, ReadThreads threads, KvQueries queries, TimeProvider clock)
{
    /// <summary>
    /// Most keys that are read in a single turn, and on the calling thread if possible. Reading this many keys in memory costs more than a few thread
    /// switches.
    /// </summary>
    internal const int KeysOfOneTurnMax = 32;

    /// <summary>
    /// Most GetManys with more keys that are read at once. More than there are read threads, so that none of these is idle. Each holds a snapshot and up to
    /// 16 MiB of its answer.
    /// </summary>
    internal const int LongReadsMax = 24;

    /// <summary>Length of a turn of a GetMany with more keys, beyond the current key. Much longer than a thread switch.</summary>
    private static readonly TimeSpan TurnTime = TimeSpan.FromMilliseconds(2);

    // Never disposed, because it has no handle unless its wait handle is used.
    private readonly SemaphoreSlim _longReads = new(LongReadsMax);
    private readonly long _turnTicks = (long)(TurnTime.TotalSeconds * clock.TimestampFrequency);

    public ValueTask GetAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        var reader = new WireReader(request);
        ReadOnlySpan<byte> key = default, options = default;
        var withLife = false;
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == GetRequest.KeyFieldNumber)
                key = reader.ReadBytes();
            else if (field == GetRequest.ReadFieldNumber)
                options = reader.ReadBytes();
            else if (field == GetRequest.WithLifeFieldNumber)
                withLife = reader.ReadBool();
            else if (field is GetRequest.NearestFieldNumber or GetRequest.WithinFieldNumber)
                return queries.GetNearestAsync(request, target, sink);
            else
                reader.Skip();
        }
        if (RequestRules.CheckKey(key) is { } bad)
            return Refusals.Send(sink, bad);
        if (Find(key, options, target, out var query, out var refusal) is not { } shard)
            return Refusals.Send(sink, refusal);
        var isToWait = !target.ReadsElsewhere && threads.TryEnterHere();
        if (isToWait)
        {
            try
            {
                if (ReadOpener.TryOpen(shard, query, out var read))
                {
                    using (read.Snapshot)
                        AnswerGet(shard, read, key, withLife, sink);
                    return ValueTask.CompletedTask;
                }
            }
            finally
            {
                threads.LeaveHere();
            }
        }
        return AnswerLaterAsync(key.ToArray(), 0, withLife, shard, query, target, sink, isToWait);
    }

    public ValueTask GetManyAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        if (TryFind(request, target, out var shard, out var query, out var keyCount, out var withLife) is { } refusal)
            return Refusals.Send(sink, refusal);
        var isToWait = !target.ReadsElsewhere && keyCount <= KeysOfOneTurnMax && threads.TryEnterHere();
        if (isToWait)
        {
            var entries = new Entries();
            try
            {
                if (ReadOpener.TryOpen(shard!, query, out var read))
                {
                    using (read.Snapshot)
                        entries.Read(shard!, read, withLife, request, sink.ReplyBytesMax, clock, until: long.MaxValue);
                    entries.Answer(sink);
                    return ValueTask.CompletedTask;
                }
            }
            finally
            {
                threads.LeaveHere();
                entries.Return();
            }
        }
        return AnswerLaterAsync(request.ToArray(), keyCount, withLife, shard!, query, target, sink, isToWait);
    }

    private HostedShard? Find(ReadOnlySpan<byte> key, ReadOnlySpan<byte> options, in CallTarget target, out ReadQuery query, out ApiError refusal)
    {
        if (ReadQuery.TryRead(options, out query) is { } bad)
        {
            refusal = bad;
            return null;
        }
        if (lookup.Find(key, target, query.Mode.IsForLeader(), out refusal) is not { } shard)
            return null;
        if (query.TryIn(shard.InLineage, options, out query) is not { } ofAnother)
            return shard;
        refusal = ofAnother;
        return null;
    }

    // Null if all keys belong to the shard found.
    private ApiError? TryFind(
        ReadOnlySpan<byte> request, in CallTarget target, out HostedShard? shard, out ReadQuery query, out int keyCount, out bool withLife)
    {
        withLife = false;
        shard = null;
        query = default;
        keyCount = 0;
        ReadOnlySpan<byte> first = default, options = default;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == GetManyRequest.ReadFieldNumber)
            {
                options = reader.ReadBytes();
            }
            else if (field == GetManyRequest.WithLifeFieldNumber)
            {
                withLife = reader.ReadBool();
            }
            else if (field == GetManyRequest.KeysFieldNumber)
            {
                var key = reader.ReadBytes();
                if (RequestRules.CheckKey(key) is { } bad)
                    return bad;
                if (++keyCount > KvLimits.KeysMax)
                    return ApiErrors.TooManyOperations;
                if (keyCount == 1)
                    first = key;
            }
            else
            {
                reader.Skip();
            }
        }
        if (keyCount == 0)
            return ApiErrors.BadRequest("The request names no key.");
        shard = Find(first, options, target, out query, out var refusal);
        return shard is null ? refusal : TryFindOther(shard, request, out var other) ? ApiErrors.ShardsDiffer(shard, lookup.RouteOf(other)) : null;
    }

    // Finds the first key of the request that does not belong to the shard.
    private static bool TryFindOther(HostedShard shard, ReadOnlySpan<byte> request, out ReadOnlySpan<byte> other)
    {
        other = default;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field != GetManyRequest.KeysFieldNumber)
                reader.Skip();
            else if (!shard.Owns(other = reader.ReadBytes()))
                return true;
        }
        return false;
    }

    /// <summary>Answers a read that could not be answered at once.</summary>
    /// <param name="asked">The key of a Get, or the request of a GetMany.</param>
    /// <param name="keyCount">Number of keys of a GetMany; 0: a Get.</param>
    /// <param name="withLife">The answer tells what ends the keys.</param>
    /// <param name="isToConfirm">A snapshot could not be opened without waiting.</param>
    private async ValueTask AnswerLaterAsync<TSink>(
        byte[] asked, int keyCount, bool withLife, HostedShard shard, ReadQuery query, CallTarget target, TSink sink, bool isToConfirm)
        where TSink : struct, IReplySink
    {
        using var wait = target.BeginWait();
        var isLong = keyCount > KeysOfOneTurnMax;
        var isOneOfLong = false;
        var isConfirmed = false;
        var isOpen = false;
        OpenedRead read = default;
        var entries = new Entries();
        try
        {
            if (isLong)
            {
                await _longReads.WaitAsync(wait.Token).ConfigureAwait(false);
                isOneOfLong = true;
            }
            while (true)
            {
                if (isToConfirm && await opener.ConfirmAsync(shard, query, target.DeadlineTimestamp, wait.Token).ConfigureAwait(false) is { } unconfirmed)
                {
                    sink.Refuse(unconfirmed);
                    return;
                }
                isConfirmed |= isToConfirm;
                // The turn is taken before the snapshot, which keeps pages from being reused and of which there is a limited number. A later snapshot is as
                // good.
                var turn = await threads.EnterAsync(isElsewhere: isLong || target.ReadsElsewhere);
                try
                {
                    wait.Token.ThrowIfCancellationRequested();
                    var now = clock.GetTimestamp();
                    if (target.DeadlineTimestamp != 0 && now > target.DeadlineTimestamp)
                    {
                        sink.Refuse(ApiErrors.DeadlinePassed);
                        return;
                    }
                    if (isOpen && read.Snapshot.IsTooOld)
                    {
                        sink.Refuse(ApiErrors.ReadTooSlow);
                        return;
                    }
                    if (!isOpen)
                        isOpen = isConfirmed ? ReadOpener.OpenConfirmed(shard, out read) : ReadOpener.TryOpen(shard, query, out read);
                    isToConfirm = !isOpen;
                    if (isOpen && keyCount == 0)
                    {
                        // Answered before the place is released, because the way back to the pool may take long.
                        using (read.Snapshot)
                            AnswerGet(shard, read, asked, withLife, sink);
                        return;
                    }
                    if (isOpen && entries.Read(shard, read, withLife, asked, sink.ReplyBytesMax, clock, isLong ? now + _turnTicks : long.MaxValue))
                    {
                        read.Snapshot.Dispose();
                        entries.Answer(sink);
                        return;
                    }
                }
                finally
                {
                    await turn.LeaveAsync();
                }
            }
        }
        catch (Exception failure) when (ApiErrors.Of(failure) is { } refusal)
        {
            sink.Refuse(refusal);
        }
        finally
        {
            if (isOpen)
                read.Snapshot.Dispose();
            entries.Return();
            if (isOneOfLong)
                _longReads.Release();
        }
    }

    private static void AnswerGet<TSink>(HostedShard shard, in OpenedRead read, ReadOnlySpan<byte> key, bool withLife, TSink sink)
        where TSink : struct, IReplySink => sink.Answer(Read(shard.InLineage, read, key, withLife ? shard.TimeMs : null));

    private static GetAnswer Read(LineageShard shard, in OpenedRead read, ReadOnlySpan<byte> key, ulong? nowMs)
    {
        if (!read.Snapshot.TryGet(TreeId.Kv, key, out var stored))
            return new GetAnswer(shard, read.Snapshot.Etag, read.AgeUs, found: false, default, default);
        var value = KvValue.Read(stored, out var etag, out var life);
        ReadThreads.Touch(value);
        return new GetAnswer(shard, read.Snapshot.Etag, read.AgeUs, found: true, value, etag, LifeField.Of(life, nowMs));
    }

    /// <summary>The answer to a GetMany, as far as it has been read. Its request has been validated.</summary>
    private struct Entries
    {
        // Rented with the first entry.
        private MessageBytes? _message;
        private int _readBytes;
        private int _bytes;

        /// <summary>Continues to read, at least one key. True if everything is read, or more than may be answered.</summary>
        /// <param name="shard">The snapshot's shard.</param>
        /// <param name="read">The same at every call.</param>
        /// <param name="withLife">Whether to tell what ends the keys.</param>
        /// <param name="request">The same at every call.</param>
        /// <param name="replyBytesMax">What the sink would refuse is counted and not copied.</param>
        /// <param name="clock">For the end of the turn; not read if the turn has no end.</param>
        /// <param name="until">When the turn ends, as a timestamp of the clock; the maximum value if it has no end.</param>
        public bool Read(HostedShard shard, in OpenedRead read, bool withLife, ReadOnlySpan<byte> request, int replyBytesMax, TimeProvider clock, long until)
        {
            ulong? nowMs = withLife ? shard.TimeMs : null;
            var reader = new WireReader(request[_readBytes..]);
            for (int field; (field = reader.ReadField()) != 0;)
            {
                if (field != GetManyRequest.KeysFieldNumber)
                {
                    reader.Skip();
                    continue;
                }
                var entry = KvReads.Read(shard.InLineage, read, reader.ReadBytes(), nowMs);
                var entryBytes = entry.Size;
                _bytes += WireWriter.BytesFieldSize(entryBytes);
                if (_bytes > KvLimits.AnswerBytesMax)
                    return true;
                if (_bytes <= replyBytesMax)
                {
                    _message ??= MessageBytes.Rent();
                    var writer = new WireWriter(_message.Append(WireWriter.BytesFieldSize(entryBytes)));
                    writer.BytesHeader(GetManyResponse.EntriesFieldNumber, entryBytes);
                    entry.WriteTo(writer.Take(entryBytes));
                }
                if (until != long.MaxValue && clock.GetTimestamp() >= until)
                {
                    _readBytes = request.Length - reader.Left;
                    return reader.Left == 0;
                }
            }
            return true;
        }

        /// <summary>Passes what was read, or an error if it is too large, to the sink.</summary>
        public readonly void Answer<TSink>(TSink sink)
            where TSink : struct, IReplySink
        {
            if (_bytes > KvLimits.AnswerBytesMax)
                sink.Refuse(ApiErrors.AnswerTooLarge);
            else if (_bytes > sink.ReplyBytesMax)
                sink.Refuse(ApiErrors.ReplyLarge(_bytes));
            else
                sink.Answer(new EncodedAnswer(_message is null ? default : _message.Written));
        }

        /// <summary>Returns its memory to the pool. May be called repeatedly.</summary>
        public void Return()
        {
            _message?.Return();
            _message = null;
        }
    }
}
