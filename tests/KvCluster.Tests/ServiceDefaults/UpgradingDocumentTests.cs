using System.Globalization;
using System.Text.RegularExpressions;
using KvCluster.Node.Runtime;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>The levels in deploy/UPGRADING.md are those of the program. Whoever adds one says there what it forbids.</summary>
public sealed partial class UpgradingDocumentTests
{
    [Fact]
    public void TableOfLevels_EqualsThatOfTheProgram()
    {
        var rows = Row().Matches(House.House.Read("deploy/UPGRADING.md"))
            .ToDictionary(static row => row.Groups[1].Value, static row => (Number(row.Groups[2]), Number(row.Groups[3])), StringComparer.Ordinal);
        Assert.Equal((ProgramLevels.Current.Format, ProgramLevels.Current.Contract), (rows["format"], rows["contract"]));
    }

    private static uint Number(Group digits) => uint.Parse(digits.ValueSpan, CultureInfo.InvariantCulture);

    [GeneratedRegex(@"^\| (format|contract) \| (\d+) to (\d+) \|", RegexOptions.Multiline)]
    private static partial Regex Row();
}
