using System.Text;
using KvCluster.Cli;

namespace KvCluster.Tests.Cli;

/// <summary>What `kv` prints as JSON.</summary>
public sealed class FieldsTests
{
    [Fact]
    public void Fields_OfEveryKind_AreWrittenInTheirOrder()
    {
        var fields = new Fields
        {
            { "text", "a \"word\" <é>\n" },
            { "nothing", null },
            { "truth", true },
            { "int", -1 },
            { "uint", 1u },
            { "long", long.MinValue },
            { "ulong", ulong.MaxValue },
            { "double", 0.1 },
            { "time", new DateTimeOffset(2026, 11, 30, 4, 5, 6, TimeSpan.Zero) },
            { "fields", new Fields { { "one", 1 } } },
            { "several", new[] { 1u, 2u } },
            { "none", Array.Empty<Fields>() },
        };
        fields.AddUnlessNull("absent", null);
        fields.AddUnlessNull("present", "");
        string[] expected =
        [
            """ "text":"a \"word\" <é>\n","nothing":null,"truth":true""",
            """ "int":-1,"uint":1,"long":-9223372036854775808,"ulong":18446744073709551615,"double":0.1""",
            """ "time":"2026-11-30T04:05:06+00:00","fields":{"one":1},"several":[1,2],"none":[],"present":"" """,
        ];
        Assert.Equal("{" + string.Join(',', expected.Select(static line => line.Trim())) + "}", Encoding.UTF8.GetString(fields.ToUtf8()));
    }

    /// <summary>It would otherwise be printed as something that nobody has described.</summary>
    [Fact]
    public void Value_ThatIsNoneOfJson_IsRefused() => Assert.Throws<ArgumentException>(() =>
    {
        new Fields { { "time", TimeSpan.Zero } }.ToUtf8();
    });
}
