using KvCluster.Node.Configuration;
using KvCluster.Router.Configuration;
using KvCluster.ServiceDefaults.Configuration;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>The tables of settings in deploy/OPERATIONS.md equal those of the programs. The expected text of a failure is the correct table.</summary>
public sealed class SettingsDocumentationTests
{
    [Fact]
    public void Document_ForBothPrograms_HasTheirTableOfSettings() => AssertHolds(RouterSettings.RunTable.Intersect(NodeSettings.RunTable));

    [Fact]
    public void Document_ForTheNode_HasItsTableOfSettings() => AssertHolds(NodeSettings.RunTable.Except(RouterSettings.RunTable));

    [Fact]
    public void Document_ForTheRouter_HasItsTableOfSettings() => AssertHolds(RouterSettings.RunTable.Except(NodeSettings.RunTable));

    private static void AssertHolds(IEnumerable<Setting> table) =>
        Assert.Contains(SettingsText.Markdown(table), House.House.Read("deploy/OPERATIONS.md"), StringComparison.Ordinal);
}
