using KvCluster.Node.Hosting;
using KvCluster.Node.Runtime;
using KvCluster.V1;

namespace KvCluster.Tests.Node;

/// <summary>Later versions of the program beside this one.</summary>
public sealed class LevelTests
{
    private static readonly ProgramLevels Later = new((1, 3), (1, 2));

    [Fact]
    public async Task Start_OfALaterVersion_JoinsAtTheLevelInForceAndFollows()
    {
        await using var cluster = await NodeCluster.StartAsync(2);
        await cluster.StopNodeAsync(2);
        await cluster.StartNodeAsync(cluster.OptionsOf(2) with { Levels = Later });
        await Eventually.TrueAsync(async () =>
        {
            var followers = (await cluster.StatusOfAsync(await cluster.LeaderOfAsync(0), shard: 0)).Replicas.Single().Detail.Followers;
            return followers.Count == 1 && followers[0].State == FollowerStatus.Types.State.Replicate;
        }, "the follower replicates");
        await cluster.PutAsync(new PutRequest { Key = Google.Protobuf.ByteString.CopyFromUtf8("k") });
        Assert.Equal(Later.ToMessage(), (await cluster.StatusOfAsync(2)).Levels);
        Assert.Equal(ProgramLevels.Current.ToMessage(), (await cluster.StatusOfAsync(1)).Levels);
    }

    [Fact]
    public async Task Start_OfAVersionWithoutTheLevelInForce_IsRefused()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.StopNodeAsync(1);
        foreach (var (levels, text) in (ReadOnlySpan<(ProgramLevels, string)>)[
            (new((3, 4), (1, 1)), "format level 2, but only the levels 3 to 4 are supported"), (new((1, 2), (2, 2)), "contract level 1, but only level 2 is supported")])
        {
            var options = cluster.OptionsOf(1) with { Levels = levels };
            var refused = Assert.Throws<AggregateException>(() => cluster.StartNodeAsync(options).Wait()).InnerException;
            Assert.Contains(text, Assert.IsType<DirectoryFormatException>(refused).Message, StringComparison.Ordinal);
        }
        await cluster.StartNodeAsync(1);
    }
}
