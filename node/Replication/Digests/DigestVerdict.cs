using Google.Protobuf;
using KvCluster.Replication.Protocol;

namespace KvCluster.Replication.Digests;

/// <summary>The result of comparing the digests of a shard's voters at one record.</summary>
/// <param name="Compared">The number of digests.</param>
/// <param name="Distinct">The number of different digests; 1 if all that are known agree.</param>
/// <param name="Expected">The digest that a majority of the voters has; null if none.</param>
/// <param name="Odd">The replicas whose digest differs from the majority's; empty without a majority.</param>
internal sealed record DigestVerdict(int Compared, int Distinct, ByteString? Expected, IReadOnlyList<ReplicaId> Odd)
{
    /// <summary>Compares the digests.</summary>
    /// <param name="voters">The voters.</param>
    /// <param name="digests">Known digests by replica id.</param>
    public static DigestVerdict Of(Quorum voters, IReadOnlyDictionary<ReplicaId, ByteString> digests)
    {
        var distinct = digests.Values.Distinct().ToList();
        var expected = distinct.Find(candidate => voters.Reached(id => digests.TryGetValue(id, out var digest) && digest == candidate));
        var odd = expected is null ? [] : digests.Where(entry => entry.Value != expected).Select(entry => entry.Key).Order().ToList();
        return new DigestVerdict(digests.Count, distinct.Count, expected, odd);
    }
}

/// <summary>A comparison in which all digests were the same.</summary>
/// <param name="Etag">The record at which they were taken.</param>
/// <param name="Replicas">How many voters were compared, the leader included.</param>
/// <param name="AtUs">When it ended, by the leader's boot clock.</param>
internal readonly record struct DigestsCompared(Etag Etag, int Replicas, long AtUs)
{
    /// <summary>The voters that were compared.</summary>
    public IReadOnlyCollection<ReplicaId> Voters { get; init; } = [];
}
