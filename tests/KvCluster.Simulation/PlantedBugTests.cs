using System.Text;
using KvCluster.Replication;
using Xunit.Abstractions;

namespace KvCluster.Simulation;

/// <summary>The suite proves itself: bugs that were planted on purpose, one at a time, are each caught by the same scenarios that otherwise hold.</summary>
public sealed class PlantedBugTests(ITestOutputHelper output)
{
    private const int SeedsForABug = 1_000;

    // These need a course of events that the mix of all comes to in every some thousandth seed: their seeds run the scenario that takes it.
    private static readonly Dictionary<PlantedBug, string> _ownScenario = new()
    {
        [PlantedBug.NoEpochCheck] = "round-trip",
        [PlantedBug.DriftIgnored] = "grant-outlived",
        [PlantedBug.NoWaitAfterRestart] = "grant-outlived",
        [PlantedBug.CommitOlderEpoch] = "old-tail-returns",
        [PlantedBug.LearnerCounts] = "leader-among-learners",
        [PlantedBug.MatchAfterForeignCut] = "cut-overtaken",
        [PlantedBug.OldCopyTrusted] = "nodes-replaced",
        [PlantedBug.ChangeWithoutBarrier] = "voters-half-changed",
        [PlantedBug.ConditionWithoutLease] = "nodes-callers-cut-off",
    };

    [Fact]
    public void EveryPlantedBug_IsCaughtWithinAThousandSeeds()
    {
        var table = new StringBuilder();
        var missed = new List<PlantedBug>();
        foreach (var bug in Enum.GetValues<PlantedBug>().Where(bug => bug != PlantedBug.None))
        {
            var results = Suite.Run(1, SeedsForABug, _ownScenario.TryGetValue(bug, out var name) ? Scenarios.Named(name) : null, bug, stopAtFailure: true);
            var caught = results.FirstOrDefault(result => result.Broken is not null);
            if (caught is null)
                missed.Add(bug);
            table.AppendLine(caught is null
                ? $"{bug,-22} not caught"
                : $"{bug,-22} {caught.Broken,-18} {caught.Seed,5} seeds  {caught.Scenario.Name,-22} {caught.What.Split('\n')[0]}");
        }

        output.WriteLine(table.ToString());
        Assert.True(missed.Count == 0, $"not caught: {string.Join(", ", missed)}\n{table}");
    }
}
