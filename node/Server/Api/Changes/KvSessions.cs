using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Hosting;
using KvCluster.Node.Shards;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Changes;

/// <summary>
/// KeepAlive on encoded requests. Called by <see cref="KvCalls"/>. The ids of sessions are their callers' secrets, so none is in an error or a log.
/// </summary>
internal sealed class KvSessions(ShardLookup lookup)
{
    public ValueTask KeepAliveAsync<TSink>(ReadOnlySpan<byte> request, in CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        ReadOnlySpan<byte> key = default;
        var count = 0;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == KeepAliveRequest.KeyFieldNumber)
                key = reader.ReadBytes();
            else
                reader.Skip();
            count += field == KeepAliveRequest.SessionsFieldNumber ? 1 : 0;
        }
        if (RequestRules.CheckKey(key) is { } bad)
            return Refusals.Send(sink, bad);
        if (count > KvLimits.KeysMax)
            return Refusals.Send(sink, ApiErrors.TooManySessions);
        if (TryReadSessions(request, count) is not { } sessions)
            return Refusals.Send(sink, ApiErrors.SessionInvalid);
        return lookup.Find(key, target, isForLeader: true, out var refusal) is { } shard ? KeepAsync(shard, sessions, target, sink)
            : Refusals.Send(sink, refusal);
    }

    // Reads the ids of the sessions; null if one of them cannot be an id.
    private static UInt128[]? TryReadSessions(ReadOnlySpan<byte> request, int count)
    {
        var (sessions, next) = (new UInt128[count], 0);
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field != KeepAliveRequest.SessionsFieldNumber)
                reader.Skip();
            else if ((sessions[next++] = ChangeReading.ReadSession(reader.ReadBytes())) == 0)
                return null;
        }
        return sessions;
    }

    private async ValueTask KeepAsync<TSink>(HostedShard shard, UInt128[] sessions, CallTarget target, TSink sink)
        where TSink : struct, IReplySink
    {
        using var wait = target.BeginWait();
        var leftMs = new ulong[sessions.Length];
        SessionsKept kept;
        try
        {
            kept = await shard.Replica!.Sessions.KeepAsync(sessions, leftMs, wait.Token).ConfigureAwait(false);
        }
        catch (Exception failure) when (ApiErrors.Of(failure) is { } refusal)
        {
            sink.Refuse(refusal);
            return;
        }
        if (kept.Refused is { } result)
            sink.Refuse(ApiErrors.Of(result, shard.Route, lookup.Node));
        else if (kept.Etag is not { } etag)
            sink.Refuse(ApiErrors.NotLeader(shard.Route, lookup.Node));
        else if (kept.IsEnding)
            sink.Refuse(ApiErrors.SessionEnding);
        else
            sink.Answer(new KeepAliveAnswer(shard.InLineage, etag, leftMs));
    }
}
