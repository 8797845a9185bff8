// What a node says about a copy that another node, or it itself, has set aside and wants to delete (CopyRelease). Thread pool only; whatever cannot be found
// out is a refusal and not an exception.
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Hosting;
using KvCluster.Node.Runtime;

namespace KvCluster.Node.Placement;

/// <summary>What a node says about a copy.</summary>
/// <param name="Alarm">Why this node does not trust the coordinator, so that no copy of the shard may be deleted; null if it trusts it.</param>
/// <param name="Refusal">Why it does not say that a majority has everything; null if it leads the shard and says so.</param>
internal sealed record CopyTestimony(string? Alarm, string? Refusal)
{
    /// <summary>The leader's epoch.</summary>
    public ulong Epoch { get; init; }

    /// <summary>What a majority had committed when it was asked.</summary>
    public Etag Committed { get; init; }

    /// <summary>The record at which a majority's trees were equal.</summary>
    public Etag Compared { get; init; }
}

/// <summary>Answers for the shards of this node.</summary>
internal sealed class CopyWitness(NodeIdentity identity, ShardHost shards, ICoordinator coordinator)
{
    /// <summary>The longest wait for the coordinator and for a round of heartbeats. Whoever asks asks again.</summary>
    private static readonly TimeSpan AnswerTimeMax = TimeSpan.FromSeconds(4);

    private readonly CoordinatorKeys _keys = new(identity.Cluster);

    /// <summary>Says whether a majority without a removed replica has everything that the copy of it has.</summary>
    /// <param name="shard">The shard.</param>
    /// <param name="copy">The replica whose copy it is.</param>
    /// <param name="newest">The copy's newest record, whether or not it was committed.</param>
    /// <param name="cancellationToken">The caller gave up.</param>
    public async Task<CopyTestimony> TestifyAsync(ShardId shard, ReplicaId copy, Etag newest, CancellationToken cancellationToken)
    {
        if (shards.RecordAlarm is { } alarm)
            return new CopyTestimony(alarm, "an alarm stands");
        using var limit = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        limit.CancelAfter(AnswerTimeMax);
        try
        {
            var read = await coordinator.GetAsync(_keys.Shard(shard), limit.Token).ConfigureAwait(false);
            return read.Value is null
                ? Refused("the coordinator has no record of the shard")
                : await TestifyAsync(shard, copy, newest, RecordText.Parse<ShardRecord>(read.Value), limit.Token).ConfigureAwait(false);
        }
        catch (CoordinatorAlarmException failure)
        {
            return new CopyTestimony(failure.Message, "an alarm stands");
        }
        catch (Exception failure) when (failure is CoordinatorUnavailableException or CoordinatorRecordException)
        {
            return Refused($"the coordinator does not tell: {failure.Message}");
        }
        catch (OperationCanceledException) when (!cancellationToken.IsCancellationRequested)
        {
            return Refused("the coordinator, or a majority of the shard's voters, did not answer in time");
        }
    }

    private async Task<CopyTestimony> TestifyAsync(ShardId shard, ReplicaId copy, Etag newest, ShardRecord record, CancellationToken cancellationToken)
    {
        if (shards.Find(shard)?.Replica is not { IsServing: true } leader)
            return Refused($"node {identity.Node} does not lead the shard");
        var confirmed = await leader.Reads.ConfirmAsync(cancellationToken).ConfigureAwait(false);
        // The view is read after the round, so that a change of leader or of voters meanwhile shows.
        if (await leader.Report.LookAsync().ConfigureAwait(false) is not { } view || !leader.IsServing)
            return Refused($"node {identity.Node} no longer leads the shard");
        if (CopyRules.WhyNotHeld(view, record, copy, newest, confirmed) is not { } reason)
            return new CopyTestimony(null, null) { Epoch = view.Epoch, Committed = confirmed!.Value, Compared = view.DigestsAgree!.Value.Etag };
        if (CopyRules.WhyNotCompared(view, newest) is not null)
            leader.WantDigests();
        return Refused(reason);
    }

    private static CopyTestimony Refused(string reason) => new(null, reason);
}
