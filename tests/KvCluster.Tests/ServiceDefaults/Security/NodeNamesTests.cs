using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;

namespace KvCluster.Tests.ServiceDefaults.Security;

/// <summary>Which names cover a node's name, and where plain text may listen.</summary>
public sealed class NodeNamesTests
{
    [Theory]
    [InlineData("node-1.c.kvcluster", true)]
    [InlineData("NODE-1.C.kvcluster", true)]
    [InlineData("*.c.kvcluster", true)]
    [InlineData("node-11.c.kvcluster", false)]
    [InlineData("node-1.other.kvcluster", false)]
    [InlineData("*.other.kvcluster", false)]
    [InlineData("*.kvcluster", false)]
    [InlineData("*.node-1.c.kvcluster", false)]
    [InlineData("*", false)]
    [InlineData("router.c.kvcluster", false)]
    public void Cover_OfNodeOne_AcceptsItsOwnNameAndTheWildcard(string name, bool covers) =>
        Assert.Equal(covers, NodeNames.Cover(["localhost", name], NodeNames.OfNode(1, "c")));

    [Theory]
    [InlineData("http://127.0.0.1:7400", false)]
    [InlineData("http://127.1.2.3:7400", false)]
    [InlineData("http://[::1]:7400", false)]
    [InlineData("http://localhost:7400", false)]
    [InlineData("http://0.0.0.0:7400", true)]
    [InlineData("http://[::]:7400", true)]
    [InlineData("http://10.0.0.1:7400", true)]
    [InlineData("http://kv-0.kv:7400", true)]
    [InlineData("https://0.0.0.0:7400", false)]
    public void IsExposed_IsTrueForPlainTextReachableByOtherMachines(string listen, bool isExposed) =>
        Assert.Equal(isExposed, PlainText.IsExposed(new Uri(listen)));
}
