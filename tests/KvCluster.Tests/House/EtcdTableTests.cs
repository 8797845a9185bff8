using System.Reflection;
using System.Text.RegularExpressions;
using KvCluster.Tests.Node;
using KvCluster.Tests.Node.Watching;

namespace KvCluster.Tests.House;

/// <summary>The table of etcd's behaviours names every test of them, and no other.</summary>
public sealed partial class EtcdTableTests
{
    [Fact]
    public void Table_NamesEveryTest()
    {
        var named = Row().Matches(House.Read("proto/Contract/ETCD.md")).Select(static row => row.Groups[1].Value).ToList();
        var tests = typeof(EtcdBehaviourTests).GetMethods(BindingFlags.Public | BindingFlags.Instance | BindingFlags.DeclaredOnly)
            .Where(static method => method.GetCustomAttribute<FactAttribute>() is not null);
        Assert.Equal(
            tests.Select(static test => test.Name).Append(nameof(WatchApiTests.WatchAsync_AfterWhatTheJournalNoLongerHas_SaysTheOldestPosition)).Order(),
            named.Order());
    }

    [GeneratedRegex(@"\| `(\w+)` \|$", RegexOptions.Multiline)]
    private static partial Regex Row();
}
