using KvCluster.Node.Configuration;
using KvCluster.Router.Configuration;
using KvCluster.ServiceDefaults.Configuration;

namespace KvCluster.Tests.Serving;

/// <summary>The README's tables of settings are those of the programs. A failure's expected text is what belongs there.</summary>
public sealed class SettingsDocumentationTests
{
    [Fact]
    public void Readme_OnSettingsOfBothPrograms_IsTheirTable() => AssertHolds(RouterSettings.RunTable.Intersect(NodeSettings.RunTable));

    [Fact]
    public void Readme_OnSettingsOfANode_IsItsTable() => AssertHolds(NodeSettings.RunTable.Except(RouterSettings.RunTable));

    [Fact]
    public void Readme_OnSettingsOfARouter_IsItsTable() => AssertHolds(RouterSettings.RunTable.Except(NodeSettings.RunTable));

    private static void AssertHolds(IEnumerable<Setting> table) => Assert.Contains(SettingsText.Markdown(table), House.House.Read("README.md"), StringComparison.Ordinal);
}
