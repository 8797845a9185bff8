using KvCluster.Node.Configuration;
using KvCluster.Router.Configuration;
using KvCluster.ServiceDefaults.Configuration;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>The tables of settings in deploy/OPERATIONS.md are those of the programs. A failure's expected text is what belongs there.</summary>
public sealed class SettingsDocumentationTests
{
    [Fact]
    public void Document_OnSettingsOfBothPrograms_HasTheirTable() => AssertHolds(RouterSettings.RunTable.Intersect(NodeSettings.RunTable));

    [Fact]
    public void Document_OnSettingsOfANode_HasItsTable() => AssertHolds(NodeSettings.RunTable.Except(RouterSettings.RunTable));

    [Fact]
    public void Document_OnSettingsOfARouter_HasItsTable() => AssertHolds(RouterSettings.RunTable.Except(NodeSettings.RunTable));

    private static void AssertHolds(IEnumerable<Setting> table) => Assert.Contains(SettingsText.Markdown(table), House.House.Read("deploy/OPERATIONS.md"), StringComparison.Ordinal);
}
