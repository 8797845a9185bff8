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

    /// <summary>Five seconds, and some for the start of processes on a busy machine; less than the ten that a call may take and that a silent node took.</summary>
    private static readonly TimeSpan Soon = TimeSpan.FromSeconds(8);

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

            var status = await SoonAsync(shell, "kv status --output json", exitCode: 0);
            using (var document = JsonDocument.Parse(status.Output))
                Assert.Equal([hung.Node], SilentIn(document));
            Assert.Contains($"{name}: does not answer", (await SoonAsync(shell, "kv doctor", ProblemsFound)).Output, StringComparison.Ordinal);
            Assert.Contains($"{name}: ", (await SoonAsync(shell, "kv admin operations", Unavailable)).Error, StringComparison.Ordinal);
            await SoonAsync(shell, "kv admin placement", exitCode: 0);
            Assert.Contains("Without " + name, (await SoonAsync(shell, $"kv admin replace-node {hung.Node}", Unavailable)).Error, StringComparison.Ordinal);
            // It may have been executed when the node goes on.
            foreach (var change in (string[])["drain", "quarantine 0"])
                Assert.Contains(name, (await SoonAsync(shell, $"kv admin {change} {hung.Node}", OutcomeUnknown)).Error, StringComparison.Ordinal);

            hung.Resume();
            ShellAnswer? ended = null;
            await Eventually.TrueAsync(async () => (ended = await shell.RunAsync($"kv admin drain {hung.Node} --off")).ExitCode == 0, () => $"the drain ends: {ended}");
            await cluster.UntilEqualAsync();
        }
    }

    private static IEnumerable<int> SilentIn(JsonDocument status) => status.RootElement.GetProperty("nodes").EnumerateArray()
        .Where(static node => node.GetProperty("error").ValueKind != JsonValueKind.Null).Select(static node => node.GetProperty("node").GetInt32());

    // On a machine without a free processor an attempt may take long for another reason. Calls that wait for the silent node take long each time.
    private static async Task<ShellAnswer> SoonAsync(OperatorShell shell, string line, int exitCode)
    {
        ShellAnswer answer;
        var attempt = 0;
        do
        {
            answer = await shell.RunAsync(line);
        }
        while ((answer.Took > Soon || answer.ExitCode != exitCode) && ++attempt < AttemptsMax);
        Assert.True(answer.Took <= Soon && answer.ExitCode == exitCode, answer.ToString());
        return answer;
    }
}
