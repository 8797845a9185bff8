using System.Text.Json;
using KvCluster.ServiceDefaults.Logs;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>The fields of the JSON log, on which log collectors rely.</summary>
public sealed class JsonLinesTests
{
    [Fact]
    public void Write_EntryWithValuesAndAnException_IsOneLineWithStableNames()
    {
        var values = new KeyValuePair<string, object?>[] { new("Shard", new ShardId(3)), new("Node", new NodeId(2)), new("Stage", 4u), new("Name", "a\"b\nc"),
            new("Draining", true), new("Nothing", null), new("Replica", new ReplicaId(0xAB)), new("Count", ulong.MaxValue), new("{OriginalFormat}", "...") };
        var line = Write(values, new InvalidOperationException("broken"));
        Assert.EndsWith("\n", line, StringComparison.Ordinal);
        Assert.DoesNotContain('\n', line.TrimEnd('\n'));
        var json = JsonDocument.Parse(line).RootElement;
        Assert.Equal(["time", "level", "source", "event", "message", "values", "exception"], json.EnumerateObject().Select(field => field.Name));
        Assert.Equal(DateTimeKind.Utc, json.GetProperty("time").GetDateTime().Kind);
        Assert.Equal(("warning", "KvCluster.Tests", 12, "said\nso"), (json.GetProperty("level")
            .GetString(), json.GetProperty("source").GetString(), json.GetProperty("event").GetInt32(), json.GetProperty("message").GetString()));
        Assert.Equal(
            """{"Shard":3,"Node":2,"Stage":4,"Name":"a\"b\nc","Draining":true,"Nothing":null,"Replica":"00000000000000ab","Count":"18446744073709551615"}""",
            json.GetProperty("values").GetRawText());
        Assert.StartsWith("System.InvalidOperationException: broken", json.GetProperty("exception").GetString(), StringComparison.Ordinal);
    }

    [Fact]
    public void Write_EntryWithoutValues_OmitsTheField()
    {
        var json = JsonDocument.Parse(Write([new("{OriginalFormat}", "...")], null)).RootElement;
        Assert.Equal(["time", "level", "source", "event", "message"], json.EnumerateObject().Select(field => field.Name));
    }

    private static string Write(IReadOnlyList<KeyValuePair<string, object?>> values, Exception? failure)
    {
        using var text = new StringWriter { NewLine = "\n" };
        var entry = new LogEntry<IReadOnlyList<KeyValuePair<string, object?>>>(
            LogLevel.Warning, "KvCluster.Tests", new EventId(12), values, failure, (_, _) => "said\nso");
        new JsonLines(TimeProvider.System).Write(entry, null, text);
        return text.ToString();
    }
}
