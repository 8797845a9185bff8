using System.Globalization;
using System.Reflection;
using System.Text.RegularExpressions;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.ServiceDefaults.Programs;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>The tables of exit codes and limits in the documents equal those of the programs.</summary>
public sealed partial class OperationsDocumentTests
{
    private const string Document = "deploy/OPERATIONS.md";

    [Theory]
    [InlineData(Document, typeof(ExitCodes))]
    [InlineData("client/Cli/README.md", typeof(KvCluster.Cli.ExitCodes))]
    public void TableOfExitCodes_EqualsThatOfTheProgram(string document, Type codes) => Assert.Equal(
        codes.GetFields(BindingFlags.Public | BindingFlags.Static).Select(static code => (int)code.GetRawConstantValue()!).Order(),
        ExitCodeRow().Matches(House.House.Read(document)).Select(static row => int.Parse(row.Groups[1].Value, CultureInfo.InvariantCulture)).Order());

    [Fact]
    public void LimitsOfRequests_AreThoseOfTheServers()
    {
        var text = House.House.Read(Document);
        Assert.Contains(
            $"| {ListenerLimits.MessageBytesMax >> 20} MiB where values or many keys are sent; {RequestLimits.ReadBytesMax >> 20} MiB for `Get`, `Scan` and "
            + "`Watch`; "
            + $"{RequestLimits.OperatorBytesMax >> 10} KiB for `Admin` calls, `OpenSession` and `EndSession`; {RequestLimits.QuestionBytesMax >> 10} KiB for "
            + "`Cluster` calls, health and reflection.",
            text, StringComparison.Ordinal);
        Assert.Contains(FormattableString.Invariant($"{KvLimits.KeysMax:N0} operations, in one shard |"), text, StringComparison.Ordinal);
    }

    [GeneratedRegex(@"^\| (\d{1,3}) \|", RegexOptions.Multiline)]
    private static partial Regex ExitCodeRow();
}
