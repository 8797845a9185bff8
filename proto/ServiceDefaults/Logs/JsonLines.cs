using System.Buffers;
using System.Text.Encodings.Web;
using System.Text.Json;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;
using Microsoft.Extensions.Logging.Console;

namespace KvCluster.ServiceDefaults.Logs;

/// <summary>
/// One line of JSON for each log message: <c>time</c> (UTC, RFC 3339), <c>level</c> (trace to critical), <c>source</c> (the class), <c>event</c> (its number
/// in that class), <c>message</c>, <c>values</c> (the message's parameters by name), <c>exception</c> (if there was one). The names are stable.
/// </summary>
/// <remarks>
/// <c>AddJsonConsole</c> has fixed names of its own, puts the message and its template among the parameters, and writes 64-bit numbers as numbers, which most
/// parsers round above 2^53.
/// </remarks>
internal sealed class JsonLines(TimeProvider time) : ConsoleFormatter(FormatName)
{
    public const string FormatName = "kvcluster-json";

    // Log collectors read the lines, not browsers, so text is not escaped for HTML.
    private static readonly JsonWriterOptions Options = new() { Encoder = JavaScriptEncoder.UnsafeRelaxedJsonEscaping };

    public override void Write<TState>(in LogEntry<TState> logEntry, IExternalScopeProvider? scopeProvider, TextWriter textWriter)
    {
        var bytes = new ArrayBufferWriter<byte>(512);
        using (var json = new Utf8JsonWriter(bytes, Options))
        {
            json.WriteStartObject();
            json.WriteString("time", time.GetUtcNow().UtcDateTime);
            json.WriteString("level", NameOf(logEntry.LogLevel));
            json.WriteString("source", logEntry.Category);
            json.WriteNumber("event", logEntry.EventId.Id);
            json.WriteString("message", logEntry.Formatter(logEntry.State, logEntry.Exception));
            WriteValues(json, logEntry.State);
            if (logEntry.Exception is { } exception)
                json.WriteString("exception", exception.ToString());
            json.WriteEndObject();
        }
        textWriter.WriteLine(System.Text.Encoding.UTF8.GetString(bytes.WrittenSpan));
    }

    private static void WriteValues<TState>(Utf8JsonWriter json, TState state)
    {
        if (state is not IReadOnlyList<KeyValuePair<string, object?>> values || values.All(IsTemplate))
            return;
        json.WriteStartObject("values");
        foreach (var value in values)
        {
            if (!IsTemplate(value))
                Write(json, value.Key, value.Value);
        }
        json.WriteEndObject();
    }

    private static bool IsTemplate(KeyValuePair<string, object?> value) => value.Key == "{OriginalFormat}";

    private static void Write(Utf8JsonWriter json, string name, object? value)
    {
        switch (value)
        {
            case null:
                json.WriteNull(name);
                break;
            case bool truth:
                json.WriteBoolean(name, truth);
                break;
            case int or long or uint:
                json.WriteNumber(name, Convert.ToInt64(value, System.Globalization.CultureInfo.InvariantCulture));
                break;
            case NodeId node:
                json.WriteNumber(name, node.Value);
                break;
            case ShardId shard:
                json.WriteNumber(name, shard.Value);
                break;
            // Unsigned 64-bit numbers are written as text too, because JSON parsers round them.
            default:
                json.WriteString(name, Convert.ToString(value, System.Globalization.CultureInfo.InvariantCulture));
                break;
        }
    }

    private static string NameOf(LogLevel level) => level switch
    {
        LogLevel.Trace => "trace",
        LogLevel.Debug => "debug",
        LogLevel.Information => "information",
        LogLevel.Warning => "warning",
        LogLevel.Error => "error",
        _ => "critical",
    };
}
