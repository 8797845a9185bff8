using System.Text;
using Xunit.Abstractions;

namespace KvCluster.Simulation;

/// <summary>The suite tests itself: each bug, injected on purpose, is caught by the scenarios in which correct code breaks no rule.</summary>
[Trait("Turn", "7")]
public sealed class InjectedBugTests(ITestOutputHelper output)
{
    private const int SeedsForABug = 1_000;
    private const int SeedsForAHarmlessOne = 60;
    private const InjectedBug Harmless = InjectedBug.LeaseBeforeSnapshot;

    // Where each bug is caught fast: the scenario, or null where all scenarios together catch it at once, and the first seed. Each bug gets the same
    // number of seeds, even if a change to the scenario has changed the course of its seeds.
    private static readonly Dictionary<InjectedBug, (string? Scenario, int First)> _caught = new()
    {
        [InjectedBug.NoEpochCheck] = ("round-trip", 550),
        [InjectedBug.AckBeforeSync] = ("follower-trouble", 23),
        [InjectedBug.PromiseNotSynced] = ("old-leader-returns", 8),
        [InjectedBug.PrepareReadsEarly] = ("old-leader-returns", 23),
        [InjectedBug.PrepareDuringGrant] = ("clocks-drift", 22),
        [InjectedBug.NoWaitAfterRestart] = ("grant-outlived", 29),
        [InjectedBug.DriftIgnored] = ("grant-outlived", 213),
        [InjectedBug.ReadOnAfterRelease] = ("transfer", 1),
        [InjectedBug.LeaseFromBefore] = ("nodes-leader-cut-off", 7),
        [InjectedBug.RoundFromBefore] = ("voters-half-changed", 20),
        [InjectedBug.OldCopyTrusted] = ("nodes-replaced", 400),
        [InjectedBug.SilenceIsAnAnswer] = ("nodes-coordinator-lost", 720),
        [InjectedBug.OldCoordinatorFollowed] = ("nodes-coordinator-lost", 1),
        [InjectedBug.ReportBindsNobody] = ("nodes-coordinator-lost", 140),
        [InjectedBug.BodiesHeldBack] = ("nodes-leader-cut-off", 6),
        [InjectedBug.NoSyncBeforeMeta] = ("store-power-lost", 16),
        [InjectedBug.NoEraseFront] = ("store-power-lost", 2),
        [InjectedBug.NoDataSyncAtInstall] = ("nodes-snapshots", 510),
        [InjectedBug.LeaseOfAnotherEpoch] = ("nodes-leader-cut-off", 4),
        [InjectedBug.SessionReadUnwaited] = ("nodes-follower-reads", 1),
        [InjectedBug.SentIsUnsent] = ("nodes-routed", 8),
        [InjectedBug.LateIsUnsent] = ("nodes-routed", 2),
        [InjectedBug.CallWithoutTimer] = ("nodes-routed", 1),
        [InjectedBug.KeptBeforeItsRecord] = ("nodes-lives", 1_000),
        [InjectedBug.LifeDriftIgnored] = ("nodes-lives", 1),
        [InjectedBug.UnknownIsWon] = ("leader-dies", 4),
        [InjectedBug.JournalNotSynced] = ("nodes-failed-but-arrived", 19),
    };

    [Fact]
    public void EveryInjectedBug_IsCaughtWithinAThousandSeeds()
    {
        var table = new StringBuilder();
        var missed = new List<InjectedBug>();
        var ruleOf = new Dictionary<InjectedBug, Rule>();
        foreach (var bug in Enum.GetValues<InjectedBug>().Where(static bug => bug != InjectedBug.None && bug != Harmless))
        {
            var (scenario, first) = _caught.GetValueOrDefault(bug, (null, 1));
            var results = Suite.Run(first, SeedsForABug, scenario is null ? null : Scenarios.Named(scenario), bug, stopAtFailure: true);
            var caught = results.FirstOrDefault(result => result.Broken is not null);
            if (caught?.Broken is { } broken)
                ruleOf[bug] = broken;
            else
                missed.Add(bug);
            table.AppendLine(caught is null
                ? $"{bug,-22} not caught"
                : $"{bug,-22} {caught.Broken,-18} seed {caught.Seed,5}, {results.Count,4} run  {caught.Scenario.Name,-22} {caught.What.Split('\n')[0]}");
        }

        output.WriteLine(table.ToString());
        Assert.True(missed.Count == 0, $"not caught: {string.Join(", ", missed)}\n{table}");
        // This bug only makes callers wait. It shows that the rule can be broken.
        Assert.Equal(Rule.Available, ruleOf[InjectedBug.BodiesHeldBack]);
    }

    // Checking the lease before taking the snapshot was taken for a bug. But the replica that held the lease when the read arrived had published
    // everything answered before, and its later snapshots contain no less. The order matters for the epoch only (LeaseOfAnotherEpoch).
    [Fact]
    public void LeaseComparedBeforeTheSnapshot_BreaksNoRule()
    {
        var broken = Suite.Run(1, SeedsForAHarmlessOne, Scenarios.Named("nodes-leader-cut-off"), Harmless, stopAtFailure: true)
            .FirstOrDefault(static result => result.Broken is not null);
        Assert.True(broken is null, broken?.Report());
    }
}
