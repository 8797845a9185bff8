using Google.Protobuf;
using KvCluster.Replication.Protocol;

namespace KvCluster.Replication.Digests;

/// <summary>What the digests of a shard's voters at one record say.</summary>
/// <param name="Compared">How many there are.</param>
/// <param name="Distinct">How many different ones; 1: they agree as far as they are known.</param>
/// <param name="Expected">The one that a majority of the voters has; null: none.</param>
/// <param name="Odd">Who has another one than the majority; empty without a majority.</param>
internal sealed record DigestVerdict(int Compared, int Distinct, ByteString? Expected, IReadOnlyList<ulong> Odd)
{
    /// <summary>Judges.</summary>
    /// <param name="voters">Who may decide.</param>
    /// <param name="digests">By replica id, without those that are not known.</param>
    public static DigestVerdict Of(Quorum voters, IReadOnlyDictionary<ulong, ByteString> digests)
    {
        var distinct = digests.Values.Distinct().ToList();
        var expected = distinct.Find(candidate => voters.Reached(id => digests.TryGetValue(id, out var digest) && digest == candidate));
        var odd = expected is null ? [] : digests.Where(entry => entry.Value != expected).Select(entry => entry.Key).Order().ToList();
        return new DigestVerdict(digests.Count, distinct.Count, expected, odd);
    }
}

/// <summary>A comparison whose digests were all the same.</summary>
/// <param name="Etag">The record at which they were taken.</param>
/// <param name="Replicas">How many voters were compared, the leader included.</param>
/// <param name="AtUs">When it ended, by the leader's boot clock.</param>
internal readonly record struct DigestsCompared(Etag Etag, int Replicas, long AtUs);
