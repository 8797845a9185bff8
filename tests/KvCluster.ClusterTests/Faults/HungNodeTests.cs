using System.Globalization;
using System.Text.Json;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>Operators' calls while a node stands still, as under SIGSTOP or in a paused container: it accepts connections, and answers nothing.</summary>
[Trait("Turn", "5")]
public sealed class HungNodeTests
{
    private const int ProblemsFound = 7;
    private const int Unavailable = 3;
    private const int OutcomeUnknown = 5;
    private const int AttemptsMax = 12;

    /// <summary>Asks the node that the shell names, and no other. Its time is that of starting a program and of a call that waits for nobody.</summary>
    private const string WithoutTheOthers = "kv status --gateway --output json";

    /// <summary>What is promised. A call may take ten seconds in all, which a silent node once took.</summary>
    private static readonly TimeSpan Soon = TimeSpan.FromSeconds(5);

    /// <summary>One hung node blocked the placement, and so every upgrade of the chart. Each node stands still in turn, also the leader.</summary>
    [ToolFact("etcd", "etcdctl", "bash")]
    public async Task F55_CallsOfOperators_WhileANodeStandsStill_AnswerSoonAndNameIt()
    {
        await using var cluster = await FaultCluster.StartAsync();
        foreach (var hung in cluster.Nodes)
        {
            var asked = cluster.Nodes.First(node => node != hung).Node;
            var shell = new OperatorShell(cluster.DirectEndpoints[asked - 1], cluster, hung.Node);
            var name = string.Create(CultureInfo.InvariantCulture, $"node {hung.Node}");
            hung.Pause();

            var status = await SoonAsync(cluster, shell, "kv status --output json", exitCode: 0);
            using (var document = JsonDocument.Parse(status.Output))
                Assert.Equal([hung.Node], SilentIn(document));
            Assert.Contains($"{name}: does not answer", (await SoonAsync(cluster, shell, "kv doctor", ProblemsFound)).Output, StringComparison.Ordinal);
            Assert.Contains($"{name}: ", (await SoonAsync(cluster, shell, "kv admin operations", Unavailable)).Error, StringComparison.Ordinal);
            await SoonAsync(cluster, shell, "kv admin placement", exitCode: 0);
            var replaced = await SoonAsync(cluster, shell, $"kv admin replace-node {hung.Node}", Unavailable);
            Assert.Contains("Without " + name, replaced.Error, StringComparison.Ordinal);
            // It may have been executed when the node goes on.
            foreach (var change in (string[])["drain", "quarantine 0"])
                Assert.Contains(name, (await SoonAsync(cluster, shell, $"kv admin {change} {hung.Node}", OutcomeUnknown)).Error, StringComparison.Ordinal);

            hung.Resume();
            ShellAnswer? ended = null;
            await Eventually.TrueAsync(
                async () => (ended = await shell.RunAsync($"kv admin drain {hung.Node} --off")).ExitCode == 0, () => $"the drain ends: {ended}");
            await cluster.UntilEqualAsync();
        }
    }

    private static IEnumerable<int> SilentIn(JsonDocument status) => status.RootElement.GetProperty("nodes").EnumerateArray()
        .Where(static node => node.GetProperty("error").ValueKind != JsonValueKind.Null).Select(static node => node.GetProperty("node").GetInt32());

    // The first answer counts. Its time is judged by what the machine takes meanwhile: the same program, started at the same time, that asks no silent node,
    // and what a bare loop loses. An unexpected answer is asked for again only where these two show that the machine took longer than an answer may.
    private static async Task<ShellAnswer> SoonAsync(FaultCluster cluster, OperatorShell shell, string line, int exitCode)
    {
        for (var attempt = 1; ; attempt++)
        {
            using var loop = new BareLoop(cluster.Folder);
            var asking = shell.RunAsync(WithoutTheOthers);
            var answer = await shell.RunAsync(line);
            var lost = loop.Lost;
            var beside = await asking;
            Assert.True(beside.ExitCode == 0, beside.ToString());
            Assert.True(
                answer.Took <= Soon + beside.Took + lost,
                $"later than {Soon}, with {beside.Took} for a program that waits for nobody and {lost} that the machine took from a loop: {answer}");
            if (answer.ExitCode == exitCode)
                return answer;
            Assert.True(beside.Took + lost > Soon && attempt < AttemptsMax, $"not {exitCode} as exit code: {answer}");
        }
    }
}
