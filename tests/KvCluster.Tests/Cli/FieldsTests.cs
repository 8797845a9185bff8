using System.Text;
using System.Text.Encodings.Web;
using System.Text.Json;
using KvCluster.Cli;
using KvCluster.Client;

namespace KvCluster.Tests.Cli;

/// <summary>What `kv` prints as JSON.</summary>
public sealed class FieldsTests
{
    private static readonly JsonSerializerOptions EveryProperty = new()
    {
        PropertyNamingPolicy = JsonNamingPolicy.SnakeCaseLower, Encoder = JavaScriptEncoder.UnsafeRelaxedJsonEscaping,
    };

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

    /// <summary>A property that is added to a document is easily forgotten in its fields.</summary>
    [Fact]
    public void Documents_HaveTheirPropertiesAsFields()
    {
        var life = new KvLife(TimeSpan.FromMilliseconds(1.5), new Etag(1, 2));
        var read = new GetResult(true, "value", new Etag(3, 4), new ShardPosition(5, new Etag(6, 7))) { Age = TimeSpan.FromSeconds(8), Life = life };
        var entry = EntryDocument.Of("key"u8, [0xFF], new Etag(3, 4), found: true).With(life);
        AssertWhole(entry, entry.ToFields());
        var answer = GetDocument.Of("key"u8, read);
        AssertWhole(answer, answer.ToFields());
        var happened = new WatchDocument
        {
            Kind = "kind",
            Reason = "reason",
            Key = "key",
            KeyBase64 = "key in base64",
            Value = "value",
            ValueBase64 = "value in base64",
            Member = "member",
            MemberBase64 = "member in base64",
            RangeEnd = "end",
            RangeEndBase64 = "end in base64",
            Etag = "etag",
            Shard = 1,
            Initial = true,
            PreviousKnown = false,
            PreviousEtag = "previous etag",
            PreviousValue = "previous value",
            PreviousValueBase64 = "previous value in base64",
            Token = "token",
        };
        AssertWhole(happened, happened.ToFields());
        var position = new WatchPositionDocument { Kind = "kind", Token = "token" };
        AssertWhole(position, position.ToFields());
        var forgotten = new WatchForgetDocument { Key = "key", KeyBase64 = "key in base64", RangeEnd = "end", RangeEndBase64 = "end in base64" };
        AssertWhole(forgotten, forgotten.ToFields());
        var context = new ClusterContext(["http://a:1", "http://b:2"])
        {
            Gateway = true, TlsCa = "ca", TlsCert = "certificate", TlsKey = "key", TlsServerName = "name",
        };
        AssertWhole(context, context.ToFields());
    }

    /// <summary>It would otherwise be printed as something that nobody has described.</summary>
    [Fact]
    public void Value_ThatIsNoneOfJson_IsRefused() => Assert.Throws<ArgumentException>(() =>
    {
        new Fields { { "time", TimeSpan.Zero } }.ToUtf8();
    });

    private static void AssertWhole<T>(T document, Fields fields) =>
        Assert.Equal(JsonSerializer.Serialize(document, EveryProperty), Encoding.UTF8.GetString(fields.ToUtf8()));
}
