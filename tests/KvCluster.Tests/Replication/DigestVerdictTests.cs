using Google.Protobuf;
using KvCluster.Replication.Digests;
using KvCluster.Replication.Protocol;

namespace KvCluster.Tests.Replication;

/// <summary>All combinations of digests. A letter is a digest; a dot is a voter whose digest is unknown.</summary>
public sealed class DigestVerdictTests
{
    [Theory]
    [InlineData("aaa", 3, 1, "a", "")]
    [InlineData("aa.", 2, 1, "a", "")]
    [InlineData("a..", 1, 1, null, "")]
    [InlineData("...", 0, 0, null, "")]
    [InlineData("aab", 3, 2, "a", "3")]
    [InlineData("baa", 3, 2, "a", "1")]
    [InlineData("ab.", 2, 2, null, "")]
    [InlineData("abc", 3, 3, null, "")]
    [InlineData("ab", 2, 2, null, "")]
    [InlineData("aaabb", 5, 2, "a", "4 5")]
    [InlineData("aaab.", 4, 2, "a", "4")]
    [InlineData("aab..", 3, 2, null, "")]
    [InlineData("aabb", 4, 2, null, "")]
    [InlineData("aabbc", 5, 3, null, "")]
    public void Of_DigestsOfVoters_FindsTheOddOnesOnlyByAMajority(string digests, int compared, int distinct, string? expected, string odd)
    {
        var voters = Enumerable.Range(1, digests.Length).Select(id => new ReplicaId((ulong)id)).ToArray();
        var known = voters.Where(id => DigestOf(id) != ".").ToDictionary(id => id, id => ByteString.CopyFromUtf8(DigestOf(id)));
        var verdict = DigestVerdict.Of(new Quorum(voters), known);
        Assert.Equal(
            (compared, distinct, expected, odd),
            (verdict.Compared, verdict.Distinct, verdict.Expected?.ToStringUtf8(), string.Join(' ', verdict.Odd.Select(static id => id.Value))));

        string DigestOf(ReplicaId id) => digests[(int)id.Value - 1].ToString();
    }

    [Fact]
    public void Of_ALearnersDigest_IsComparedAndHasNoVote()
    {
        var digests = new Dictionary<ReplicaId, ByteString> { [new(1)] = ByteString.CopyFromUtf8("a"), [new(9)] = ByteString.CopyFromUtf8("a") };
        Assert.Null(DigestVerdict.Of(new Quorum([new ReplicaId(1), new ReplicaId(2), new ReplicaId(3)]), digests).Expected);
    }
}
