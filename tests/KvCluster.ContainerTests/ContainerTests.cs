using System.Runtime.CompilerServices;
using Xunit.Abstractions;

namespace KvCluster.ContainerTests;

/// <summary>
/// What is done to containers: each test under writes through the router. Where one container at a time is missing, no call fails. In every case what was
/// acknowledged is there in the end, what was refused is not, and all replicas are equal.
/// </summary>
public sealed class ContainerTests(SharedContainers shared, ITestOutputHelper output) : IClassFixture<SharedContainers>
{
    [ContainerFact]
    public Task Commands_InsideTheNetwork_AreServedByTheNodes() => UnderLoadAsync(async (cluster, _) =>
    {
        var (code, _, error) = await cluster.RunKvAsync(["put", "greeting", "hello"]);
        Assert.True(code == 0, error);
        Assert.Equal((0, "hello", ""), await cluster.RunKvAsync(["get", "greeting"]));
    });

    [ContainerFact]
    public Task Kill_OfTheNodeThatLeadsMost_FailsNoCall() => UnderLoadAsync(async (cluster, load) =>
    {
        var node = await cluster.LeadsMostAsync();
        await ContainerCluster.KillAsync(cluster.Node(node));
        await cluster.UntilLedByOthersAsync(node);
        await load.MoreAsync();
        await cluster.Node(node).StartAsync();
    });

    [ContainerFact]
    public Task Pause_OfTheNodeThatLeadsMost_FailsNoCall() => UnderLoadAsync(async (cluster, load) =>
    {
        var node = await cluster.LeadsMostAsync();
        await cluster.Node(node).PauseAsync();
        await cluster.UntilLedByOthersAsync(node);
        await load.MoreAsync();
        await cluster.Node(node).UnpauseAsync();
    });

    [ContainerFact]
    public Task Disconnection_OfTheNodeThatLeadsMost_FailsNoCall() => UnderLoadAsync(async (cluster, load) =>
    {
        var node = await cluster.LeadsMostAsync();
        await cluster.DisconnectAsync(node);
        await cluster.UntilLedByOthersAsync(node);
        await load.MoreAsync();
        await cluster.ReconnectAsync(node);
    });

    [ContainerFact]
    public Task StopAndStart_OfEachNode_FailsNoCall() => UnderLoadAsync(async (cluster, load) =>
    {
        foreach (var node in cluster.Nodes)
        {
            await ContainerCluster.StopAsync(cluster.Node(node));
            // Otherwise the engine has killed it after the time that it had.
            Assert.Equal(0, await cluster.Node(node).GetExitCodeAsync());
            await load.MoreAsync();
            await cluster.Node(node).StartAsync();
            await cluster.UntilServingAsync();
        }
    });

    /// <summary>Nodes serve without their coordinator, and calls wait for the only router.</summary>
    [ContainerFact]
    public Task StopAndStart_OfEtcdAndTheRouter_FailsNoCall() => UnderLoadAsync(async (cluster, load) =>
    {
        await ContainerCluster.StopAsync(cluster.Etcd);
        await load.MoreAsync();
        await cluster.Etcd.StartAsync();
        await ContainerCluster.StopAsync(cluster.Router);
        Assert.Equal(0, await cluster.Router.GetExitCodeAsync());
        await cluster.Router.StartAsync();
    });

    /// <summary>A new container has the data of the removed one, and mostly another address under the same name.</summary>
    [ContainerFact]
    public Task Replacement_OfEachContainer_FailsNoCall() => UnderLoadAsync(async (cluster, load) =>
    {
        foreach (var node in cluster.Nodes)
        {
            await cluster.ReplaceNodeAsync(node, Engine.NodeImage);
            await cluster.UntilServingAsync();
            await load.MoreAsync();
        }
        await cluster.ReplaceEtcdAsync();
        await cluster.ReplaceRouterAsync(Engine.RouterImage);
    });

    /// <summary>As deploy/UPGRADING.md describes it: each node transfers its leaderships, stops, and comes back with the new program before the next.</summary>
    [ContainerFact]
    public Task Upgrade_OfAllNodesAndTheRouter_FailsNoCall() => UnderLoadAsync(async (cluster, load) =>
    {
        foreach (var node in cluster.Nodes)
        {
            await cluster.DrainAsync(node);
            await ContainerCluster.StopAsync(cluster.Node(node));
            await cluster.ReplaceNodeAsync(node, Engine.UpgradedNodeImage);
            await cluster.UntilServingAsync();
        }
        await cluster.ReplaceRouterAsync(Engine.UpgradedRouterImage);
        await load.MoreAsync();
    });

    /// <summary>As after a power failure of the machine: every process is gone, and new containers find the volumes.</summary>
    [ContainerFact]
    public Task Removal_OfAllContainers_LosesNothingAcknowledged() => UnderLoadAsync(
        async (cluster, _) =>
        {
            await cluster.RemoveContainersAsync();
            await cluster.StartAsync();
        },
        callsMayFail: true);

    private async Task UnderLoadAsync(Func<ContainerCluster, Load, Task> happens, bool callsMayFail = false, [CallerMemberName] string test = "")
    {
        try
        {
            var cluster = await shared.BeginAsync();
            await using var load = new Load(cluster.RouterAddress, test);
            await load.MoreAsync();
            await happens(cluster, load);
            await cluster.UntilServingAsync();
            await load.MoreAsync();
            await load.StopAsync();
            output.WriteLine($"{test}: {load}");
            if (!callsMayFail)
                Assert.Empty(load.Failures);

            await cluster.UntilEqualAsync();
            await load.NoRefusedKeyIsThereAsync();
            var (code, verified, differences) = await cluster.RunKvAsync(["verify", "/file"], load.ToTsv());
            Assert.True(code == 0, $"kv verify ended with {code}: {differences} {verified}");
            output.WriteLine($"{test}: {verified}");
        }
        catch
        {
            foreach (var line in await shared.LastLinesAsync())
                output.WriteLine(line);
            throw;
        }
        shared.End();
    }
}
