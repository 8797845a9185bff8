using KvCluster.Node.Shards.Context;

namespace KvCluster.Tests.Node;

/// <summary>How often a node's replicas do what they do again and again.</summary>
public sealed class SharedPaceTests
{
    [Theory]
    [InlineData(0, 1)]
    [InlineData(100, 1)]
    [InlineData(101, 2)]
    [InlineData(1_000, 10)]
    public void Every_OfSoManyReplicas_KeepsTheirNumberInAnInterval(int replicas, int every)
    {
        var pace = new SharedPace(ofInterval: 100);
        for (var replica = 0; replica < replicas; replica++)
            pace.Count(isOne: true);
        Assert.Equal(every, pace.Every);
        for (var replica = 0; replica < replicas; replica++)
            pace.Count(isOne: false);
        Assert.Equal(1, pace.Every);
    }
}
