using KvCluster.Cli.Commands;
using KvCluster.Client;
using KvCluster.V1;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Tests.Client;

/// <summary>What is shown of nodes of other versions.</summary>
public sealed class StatusReadingTests
{
    /// <summary>A newer <c>kv</c> showed "unspecified" for the replicas of an older node, and a number for a role that came later.</summary>
    [Theory]
    [InlineData((int)Role.Unspecified, "unknown")]
    [InlineData(99, "unknown")]
    [InlineData((int)Role.Leader, "leader")]
    [InlineData((int)Role.Stopped, "stopped")]
    public void Role_OfAnyVersion_IsItsNameOrUnknown(int role, string text) => Assert.Equal(text, StatusOf((Role)role).Nodes.Single().Replicas.Single().Role);

    [Fact]
    public void Hints_OfRolesThatAreNotKnown_NameTheNodeAndItsVersion()
    {
        Assert.Equal(
            ["node 2 runs version 0.0.9, whose roles this kv does not know; the kv of that version shows them"],
            StatusCommand.Hints(StatusOf(Role.Unspecified)));
        Assert.Empty(StatusCommand.Hints(StatusOf(Role.Follower)));
    }

    private static ClusterStatus StatusOf(Role role) => StatusReading.ToStatus(new GetStatusResponse
    {
        Cluster = "c",
        Nodes = { new V1.NodeStatus { Node = 2, Version = "0.0.9", Replicas = { new V1.ReplicaStatus { Route = new ShardRoute(), Role = role } } } },
    });
}
