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

    /// <summary>Other commands need more of the processor than the one that is started beside them. On an idle machine this allows for a second.</summary>
    private const int BesideTimes = 4;

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

            await SoonAsync(cluster, shell, "kv status --output json", exitCode: 0, status => SilentIn(status).SequenceEqual([hung.Node]));
            await SoonAsync(cluster, shell, "kv doctor", ProblemsFound, found => Says(found.Output, $"{name}: does not answer"));
            await SoonAsync(cluster, shell, "kv admin operations", Unavailable, listed => Says(listed.Error, $"{name}: "));
            await SoonAsync(cluster, shell, "kv admin placement", exitCode: 0, static _ => true);
            await SoonAsync(cluster, shell, $"kv admin replace-node {hung.Node}", Unavailable, replaced => Says(replaced.Error, "Without " + name));
            // It may have been executed when the node goes on.
            foreach (var change in (string[])["drain", "quarantine 0"])
                await SoonAsync(cluster, shell, $"kv admin {change} {hung.Node}", OutcomeUnknown, changed => Says(changed.Error, name));

            hung.Resume();
            ShellAnswer? ended = null;
            await Eventually.TrueAsync(
                async () => (ended = await shell.RunAsync($"kv admin drain {hung.Node} --off")).ExitCode == 0, () => $"the drain ends: {ended}");
            await cluster.UntilEqualAsync();
        }
    }

    private static bool Says(string printed, string text) => printed.Contains(text, StringComparison.Ordinal);

    private static IReadOnlyList<int> SilentIn(ShellAnswer status)
    {
        using var document = JsonDocument.Parse(status.Output);
        return [.. document.RootElement.GetProperty("nodes").EnumerateArray()
            .Where(static node => node.GetProperty("error").ValueKind != JsonValueKind.Null).Select(static node => node.GetProperty("node").GetInt32())];
    }

    // The first answer counts. Its time is judged by what the machine takes meanwhile: some times the same program, started at the same time, that asks no
    // silent node, because no command needs as little of the processor as that one, and what a bare loop loses. An unexpected answer is asked for again only
    // where these two show that the machine took longer than an answer may.
    private static async Task SoonAsync(FaultCluster cluster, OperatorShell shell, string line, int exitCode, Func<ShellAnswer, bool> isExpected)
    {
        for (var attempt = 1; ; attempt++)
        {
            using var loop = new BareLoop(cluster.Folder);
            var asking = shell.RunAsync(WithoutTheOthers);
            var answer = await shell.RunAsync(line);
            var lost = loop.Lost;
            var beside = await asking;
            var machine = (BesideTimes * beside.Took) + lost;
            Assert.True(
                answer.Took <= Soon + machine,
                $"later than {Soon}, with {beside.Took} for a program that waits for nobody and {lost} that the machine took from a loop: {answer}");
            if (beside.ExitCode == 0 && answer.ExitCode == exitCode && isExpected(answer))
                return;
            Assert.True(machine > Soon && attempt < AttemptsMax, $"not exit code {exitCode} and what is to be printed: {answer}; beside it: {beside}");
        }
    }
}
