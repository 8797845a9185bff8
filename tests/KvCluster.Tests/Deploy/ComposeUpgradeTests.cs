using System.Runtime.Versioning;
using KvCluster.Processes;

namespace KvCluster.Tests.Deploy;

/// <summary>
/// deploy/compose/upgrade, with a program in the place of Docker that notes what is done. tests/nightly/docker runs it on containers under load.
/// </summary>
[UnsupportedOSPlatform("windows")]
[Trait("Turn", "7")]
public sealed class ComposeUpgradeTests : IDisposable
{
    private static readonly string Repository = Tools.Repository();
    private readonly TemporaryDirectory _folder = new();

    public ComposeUpgradeTests()
    {
        // A copy, because the script writes into the .env of the repository that it is in.
        Directory.CreateDirectory(PathOf("deploy/compose"));
        Directory.CreateDirectory(PathOf("state"));
        File.Copy(Path.Combine(Repository, "deploy", "compose", "upgrade"), PathOf("deploy/compose/upgrade"));
        State("wanted", "2");
        State("present", "1\n2");
        foreach (var service in (string[])["node-1", "node-2", "node-3", "router"])
        {
            State(service + ".id", service + ".1");
            State(service + ".tag", "1");
        }
    }

    public void Dispose() => _folder.Dispose();

    /// <summary>`docker compose up` makes all nodes anew at once, and nothing was served for 12 seconds.</summary>
    [ToolFact("bash", "env")]
    public async Task Upgrade_MovesLeadershipsAway_AndRenewsOneServiceAfterTheOther()
    {
        var (exitCode, output, error) = await RunAsync();
        Assert.True(exitCode == 0, output + error);
        Assert.Equal(["admin drain 1", "up node-1 2", "admin drain 2", "up node-2 2", "admin drain 3", "up node-3 2", "up router 2"], Log());
    }

    /// <summary>It has the image of the nodes. Left behind, it would keep an old version for ever.</summary>
    [ToolFact("bash", "env")]
    public async Task Upgrade_RenewsWhatTakesSnapshots_Last()
    {
        State("snapshots.id", "snapshots.1");
        State("snapshots.tag", "1");
        var (exitCode, output, error) = await RunAsync();
        Assert.True(exitCode == 0, output + error);
        Assert.Equal(["up router 2", "up snapshots 2"], Log().TakeLast(2));
    }

    [ToolFact("bash", "env")]
    public async Task Upgrade_OfWhatIsCurrent_ChangesNothing()
    {
        State("wanted", "1");
        var (exitCode, output, error) = await RunAsync();
        Assert.True(exitCode == 0, output + error);
        Assert.Empty(Log());
    }

    [ToolFact("bash", "env")]
    public async Task Upgrade_NodeDoesNotComeBack_StopsAndLaterBeginsWithIt()
    {
        State("broken", "node-2");
        var (exitCode, output, error) = await RunAsync();
        Assert.Equal(1, exitCode);
        Assert.Contains("node-2 is not ready after 1 s. The others were left as they are and serve.", error, StringComparison.Ordinal);
        Assert.Contains("it does not start", error, StringComparison.Ordinal);
        Assert.Equal("up node-2 2", Log()[^1]);

        File.Delete(PathOf("state/broken"));
        File.Delete(PathOf("state/log"));
        (exitCode, output, error) = await RunAsync();
        Assert.True(exitCode == 0, output + error);
        Assert.Equal(
            ["up node-2 2", "admin drain 3", "up node-3 2", "up router 2"], Log().Where(static line => !line.EndsWith("--off", StringComparison.Ordinal)));
    }

    /// <summary>The drain is refused while the other voters are no majority, so the node must not be stopped.</summary>
    [ToolFact("bash", "env")]
    public async Task Upgrade_DrainIsRefused_LeavesTheNodeRunning()
    {
        State("refused", "1");
        var (exitCode, _, error) = await RunAsync();
        Assert.Equal(1, exitCode);
        Assert.Contains("It was not stopped, and leads again.", error, StringComparison.Ordinal);
        Assert.DoesNotContain(Log(), static line => line.StartsWith("up ", StringComparison.Ordinal));
        Assert.Equal("admin drain 1 --off", Log()[^1]);
    }

    [ToolFact("bash", "env")]
    public async Task Upgrade_NodeLags_StopsBeforeTheNextOne_AndSoDoesTheSecondRun()
    {
        State("behind", "1");
        for (var run = 0; run < 2; run++)
        {
            var (exitCode, _, error) = await RunAsync();
            Assert.Equal(1, exitCode);
            Assert.Contains("node 1 is ready, but lags more than 1000 changes behind", error, StringComparison.Ordinal);
        }
        Assert.Equal(["admin drain 1", "up node-1 2"], Log());
    }

    [ToolFact("bash", "env")]
    public async Task Upgrade_ToAnImageThatIsNotThere_StopsNothing()
    {
        State("wanted", "9");
        var (exitCode, _, error) = await RunAsync();
        Assert.Equal(1, exitCode);
        Assert.Contains("the image kvcluster/node:9 is neither here nor can it be pulled. Nothing was stopped.", error, StringComparison.Ordinal);
        Assert.Empty(Log());
    }

    [ToolFact("bash", "env")]
    public async Task Upgrade_WithATag_KeepsItForLaterCallsOfCompose()
    {
        await File.WriteAllTextAsync(PathOf(".env"), "KV_PORT=7000\nNODE_IMAGE=registry.example:5000/node\n");
        var (exitCode, output, error) = await RunAsync("--tag", "2");
        Assert.True(exitCode == 0, output + error);
        Assert.Equal(
            ["KV_PORT=7000", "NODE_IMAGE=registry.example:5000/node:2", "ROUTER_IMAGE=kvcluster/router:2", "CLI_IMAGE=kvcluster/cli:2"],
            await File.ReadAllLinesAsync(PathOf(".env")));
    }

    /// <summary>It may have passwords, and was readable by everybody afterwards.</summary>
    [ToolFact("bash", "env")]
    public async Task Upgrade_WithATag_LeavesTheModeOfTheFile()
    {
        const UnixFileMode OwnerOnly = UnixFileMode.UserRead | UnixFileMode.UserWrite;
        await File.WriteAllTextAsync(PathOf(".env"), "GF_SECURITY_ADMIN_PASSWORD=secret\n");
        File.SetUnixFileMode(PathOf(".env"), OwnerOnly);
        var (exitCode, output, error) = await RunAsync("--tag", "2");
        Assert.True(exitCode == 0, output + error);
        Assert.Equal(OwnerOnly, File.GetUnixFileMode(PathOf(".env")));
    }

    [ToolTheory("bash", "env")]
    [InlineData("--tag")]
    [InlineData("--wait soon")]
    [InlineData("--tag a:b")]
    public async Task Upgrade_WithAMistake_ChangesNothing(string arguments)
    {
        var (exitCode, _, _) = await RunAsync(arguments.Split(' '));
        Assert.Equal(2, exitCode);
        Assert.Empty(Log());
    }

    private string PathOf(string path) => Path.Combine(_folder.Path, path);

    private void State(string name, string text) => File.WriteAllText(PathOf("state/" + name), text + "\n");

    // What was done that changes something, in order.
    private string[] Log() => File.Exists(PathOf("state/log")) ? File.ReadAllLines(PathOf("state/log")) : [];

    private Task<(int ExitCode, string Output, string Error)> RunAsync(params string[] arguments)
    {
        var path = $"{Path.Combine(Repository, "tests", "KvCluster.Tests", "Deploy", "compose")}:{Environment.GetEnvironmentVariable("PATH")}";
        return Tools.RunAsync(
            Tools.Find("env")!,
            [
                "-u", "NODE_IMAGE", "-u", "ROUTER_IMAGE", "-u", "CLI_IMAGE", "-u", "COMPOSE_FILE", $"STATE={PathOf("state")}", $"PATH={path}",
                "bash", PathOf("deploy/compose/upgrade"), "--wait", "1", .. arguments
            ]);
    }
}
