using System.Runtime.Versioning;
using System.Text.RegularExpressions;
using KvCluster.Processes;

namespace KvCluster.Tests.Deploy;

/// <summary>
/// The commands of deploy/OPERATIONS.md that restore a snapshot of etcd, with a kubectl and a docker that note what they are told. With the chart's defaults
/// the members kept addresses that nobody listens at. After a step that failed the commands went on, and moved the data of a running etcd away, started
/// restored members with old ones, or had deleted the old data.
/// </summary>
[UnsupportedOSPlatform("windows")]
public sealed partial class RestoreTests : IDisposable
{
    private const string Stub =
        """
        #!/usr/bin/env bash
        echo "$*" >>"$STUB/calls"
        case " $* " in
          *" apply "*) cat >>"$STUB/applied" ;;
        esac
        [[ -z $FAILS || "$*" != *"$FAILS"* ]]

        """;

    private readonly TemporaryDirectory _folder = new();

    public RestoreTests()
    {
        foreach (var program in (string[])["kubectl", "docker"])
        {
            File.WriteAllText(PathOf(program), Stub);
            File.SetUnixFileMode(PathOf(program), UnixFileMode.UserRead | UnixFileMode.UserExecute);
        }
        File.WriteAllText(PathOf("calls"), "");
        File.WriteAllText(PathOf("applied"), "");
    }

    public void Dispose() => _folder.Dispose();

    [ToolFact("bash", "env")]
    public async Task Restore_OnKubernetes_GivesEachMemberWhatTheChartGivesIt()
    {
        Assert.Equal(0, await RunAsync("kubectl"));

        var chart = House.House.Read("tests/KvCluster.Tests/Deploy/golden/default.yaml");
        var arguments = MemberArgument().Matches(chart).Select(static argument => argument.Value).ToList();
        Assert.Equal(5, arguments.Count);
        var pods = File.ReadAllText(PathOf("applied")).Split("kind: Pod").Skip(1).ToList();
        Assert.Equal(3, pods.Count);
        for (var member = 0; member < pods.Count; member++)
        {
            foreach (var argument in arguments)
                Assert.Contains(
                    $"- {argument.Replace("$(POD_NAME)", $"store-kvcluster-etcd-{member}", StringComparison.Ordinal)}\n", pods[member],
                    StringComparison.Ordinal);
            Assert.Contains(EtcdImage().Match(chart).Value + "\n", pods[member], StringComparison.Ordinal);
        }
        Assert.Equal(
            ["scale statefulset store-kvcluster-etcd --replicas 3", "patch cronjob store-kvcluster-snapshots -p {\"spec\": {\"suspend\": false}}"],
            Calls("-n data ").TakeLast(2));
    }

    /// <summary>All members stay stopped.</summary>
    [ToolTheory("bash", "env")]
    [InlineData("scale statefulset", 0)]
    [InlineData("wait --for=delete", 0)]
    [InlineData("pod/restore-1 ", 2)]
    public async Task Restore_OnKubernetes_EndsAtAStepThatFails(string fails, int restores)
    {
        Assert.NotEqual(0, await RunAsync("kubectl", fails));

        Assert.Equal(restores, Calls("-n data ").Count(static call => call.StartsWith("apply ", StringComparison.Ordinal)));
        Assert.DoesNotContain(Calls("-n data "), static call => call.EndsWith("--replicas 3", StringComparison.Ordinal));
    }

    /// <summary>Another release in the namespace has pods of its own, which are never deleted.</summary>
    [ToolFact("bash", "env")]
    public async Task Restore_OnKubernetes_WaitsForThePodsOfItsReleaseOnly()
    {
        await RunAsync("kubectl");

        Assert.Contains("wait --for=delete pod -l app.kubernetes.io/instance=store,app.kubernetes.io/component=etcd --timeout 5m", Calls("-n data "));
    }

    [ToolFact("bash", "env")]
    public async Task Restore_WithCompose_MovesTheOldDataAsideAfterTheRestore()
    {
        Assert.Equal(0, await RunAsync("docker"));

        var calls = Calls("");
        Assert.Equal(
            ["compose stop", "compose rm", "run --rm", "run --rm", "compose up"], calls.Select(static call => string.Join(' ', call.Split(' ').Take(2))));
        Assert.Contains("snapshot restore", calls[2], StringComparison.Ordinal);
        Assert.Contains("mv member lost.", calls[3], StringComparison.Ordinal);
    }

    [ToolTheory("bash", "env")]
    [InlineData("compose rm", 2)]
    [InlineData("snapshot restore", 3)]
    [InlineData("busybox", 4)]
    public async Task Restore_WithCompose_EndsAtAStepThatFails(string fails, int calls)
    {
        Assert.NotEqual(0, await RunAsync("docker", fails));

        Assert.Equal(calls, Calls("").Count);
    }

    // Runs the block that restores with this program.
    private async Task<int> RunAsync(string program, string fails = "")
    {
        var block = Block().Matches(House.House.Read("deploy/OPERATIONS.md")).Select(static match => match.Groups[1].Value)
            .Single(text => text.Contains("etcdutl", StringComparison.Ordinal) && text.Contains($"\n{program} ", StringComparison.Ordinal));
        var path = $"{_folder.Path}:{Environment.GetEnvironmentVariable("PATH")}";
        return (await Tools.RunAsync("env", $"STUB={_folder.Path}", $"FAILS={fails}", $"PATH={path}", "bash", "-c", block)).ExitCode;
    }

    private List<string> Calls(string prefix) =>
        [.. File.ReadAllLines(PathOf("calls")).Select(call => call.StartsWith(prefix, StringComparison.Ordinal) ? call[prefix.Length..] : call)];

    private string PathOf(string name) => Path.Combine(_folder.Path, name);

    [GeneratedRegex(@"^```\w*\n(.*?)^```", RegexOptions.Multiline | RegexOptions.Singleline)]
    private static partial Regex Block();

    [GeneratedRegex(@"--(name|data-dir|initial-advertise-peer-urls|initial-cluster|initial-cluster-token)=\S+")]
    private static partial Regex MemberArgument();

    [GeneratedRegex(@"image: \S+/etcd:\S+")]
    private static partial Regex EtcdImage();
}
