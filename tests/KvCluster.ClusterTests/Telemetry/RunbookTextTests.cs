using System.Text.RegularExpressions;
using KvCluster.ClusterTests.Faults;

namespace KvCluster.ClusterTests.Telemetry;

/// <summary>Rules, dashboards and runbook name one another as they are, and what the runbook advises is tested.</summary>
public sealed partial class RunbookTextTests
{
    private static readonly string[] Tested =
    [
        .. typeof(RunbookTests).GetMethods().SelectMany(static method => method.GetCustomAttributesData())
            .Where(static attribute => attribute.AttributeType == typeof(TraitAttribute))
            .Select(static attribute => attribute.ConstructorArguments).Where(static trait => (string)trait[0].Value! == RunbookTests.Entry)
            .Select(static trait => (string)trait[1].Value!),
    ];

    /// <summary>A test of this project executes them. It asserts itself that it has executed all blocks of the entry.</summary>
    [Fact]
    public void Entries_ThatAlertsLinkTo_EachHaveCommandsAndATest()
    {
        var linked = LinkedEntry().Matches(TelemetryFiles.Alerts).Select(static link => link.Groups[1].Value).Order().ToList();
        Assert.NotEmpty(linked);
        Assert.Equal(linked, Runbook.Entries.Keys.Order());
        Assert.Equal(linked, Tested.Order());
    }

    [Fact]
    public void Alerts_LinkToTheirOwnEntries_AndHaveTheSeverityOfTheRunbooksTable()
    {
        foreach (var (alert, text) in TelemetryFiles.AlertTexts)
            Assert.Contains($"See RUNBOOK.md, {alert}.", text, StringComparison.Ordinal);
        Assert.Equal(
            TelemetryFiles.AlertTexts.Select(static rule => (rule.Key, Severity().Match(rule.Value).Groups[1].Value)).Order(),
            Row().Matches(Runbook.Text).Select(static row => (row.Groups[1].Value, row.Groups[2].Value)).Order());
    }

    [Fact]
    public void Panels_ThatTheRunbookNames_Exist()
    {
        var named = Panel().Matches(Runbook.Text).Select(static panel => (panel.Groups[1].Value, panel.Groups[2].Value)).ToList();
        // No dashboard is named in another way.
        Assert.Equal(Dashboard().Count(Runbook.Text), named.Count);
        Assert.Empty(named.Except(TelemetryFiles.Panels()));
    }

    /// <summary>Both alerts about calls count the same reasons, and the runbook says what to do about each.</summary>
    [Fact]
    public void Reasons_ThatAlertsCount_AreThoseOfTheRunbook()
    {
        var entry = Runbook.Text.Split("## ").Single(static section => section.StartsWith("KvClusterRequestsFail", StringComparison.Ordinal));
        var advised = Reason().Matches(entry).Select(static reason => reason.Groups[1].Value).Order().ToList();
        Assert.All((string[])["KvClusterRequestsFail", "KvClusterNodesRefuse"], alert => Assert.Equal(advised, TelemetryFiles.ReasonsOf(alert).Order()));
    }

    /// <summary>The alarms of the coordinator are of level Critical, which the entry did not name, and it led nowhere.</summary>
    [Fact]
    public void Alarm_AboutTheCoordinator_LeadsToTheRecovery()
    {
        var entry = Runbook.Text.Split("## ").Single(static section => section.StartsWith("KvClusterAlarm\n", StringComparison.Ordinal));
        Assert.Contains("level Critical, Error or Warning", entry, StringComparison.Ordinal);
        Assert.Contains("(../OPERATIONS.md#the-coordinators-data-is-lost)", entry, StringComparison.Ordinal);
    }

    [GeneratedRegex(@"See RUNBOOK\.md, (\w+)")]
    private static partial Regex LinkedEntry();

    [GeneratedRegex(@"severity: (\w+)")]
    private static partial Regex Severity();

    [GeneratedRegex(@"^\| \[(\w+)\]\(#\w+\) \| (\w+) \|", RegexOptions.Multiline)]
    private static partial Regex Row();

    [GeneratedRegex(@"dashboard ""([^""]+)"", panel ""([^""]+)""")]
    private static partial Regex Panel();

    [GeneratedRegex(@"dashboards? """)]
    private static partial Regex Dashboard();

    [GeneratedRegex(@"^\| `([A-Z_]+)` \|", RegexOptions.Multiline)]
    private static partial Regex Reason();
}
