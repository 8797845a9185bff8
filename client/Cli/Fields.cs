using System.Buffers;
using System.Collections;
using System.Text.Encodings.Web;
using System.Text.Json;

namespace KvCluster.Cli;

/// <summary>
/// An object of JSON: names, which scripts read, with values, in the order in which they are added. A value is null, text, a number, true or false, a time,
/// other fields, or several of these. Written without reflection, which takes longer to begin than a short command, and which finds nothing of types without a
/// name in a program that is compiled natively. One thread at a time.
/// </summary>
internal sealed class Fields : IEnumerable<KeyValuePair<string, object?>>
{
    private readonly List<KeyValuePair<string, object?>> _fields = [];

    public void Add(string name, object? value) => _fields.Add(KeyValuePair.Create(name, value));

    /// <summary>Adds a field that is left out without a value.</summary>
    public void AddUnlessNull(string name, object? value)
    {
        if (value is not null)
            Add(name, value);
    }

    /// <summary>The object as UTF-8, on one line unless it is indented.</summary>
    public ReadOnlySpan<byte> ToUtf8(bool isIndented = false)
    {
        var bytes = new ArrayBufferWriter<byte>();
        // The output is for terminals and files, never for HTML, so text stays readable.
        var form = new JsonWriterOptions { Encoder = JavaScriptEncoder.UnsafeRelaxedJsonEscaping, Indented = isIndented };
        using (var writer = new Utf8JsonWriter(bytes, form))
            Write(writer, this);
        return bytes.WrittenSpan;
    }

    public IEnumerator<KeyValuePair<string, object?>> GetEnumerator() => _fields.GetEnumerator();

    IEnumerator IEnumerable.GetEnumerator() => GetEnumerator();

    private static void Write(Utf8JsonWriter writer, Fields fields)
    {
        writer.WriteStartObject();
        foreach (var (name, value) in fields._fields)
        {
            writer.WritePropertyName(name);
            Write(writer, value);
        }
        writer.WriteEndObject();
    }

    private static void Write(Utf8JsonWriter writer, object? value)
    {
        switch (value)
        {
            case null:
                writer.WriteNullValue();
                break;
            case string text:
                writer.WriteStringValue(text);
                break;
            case bool isTrue:
                writer.WriteBooleanValue(isTrue);
                break;
            case int number:
                writer.WriteNumberValue(number);
                break;
            case uint number:
                writer.WriteNumberValue(number);
                break;
            case long number:
                writer.WriteNumberValue(number);
                break;
            case ulong number:
                writer.WriteNumberValue(number);
                break;
            case double number:
                writer.WriteNumberValue(number);
                break;
            case DateTimeOffset time:
                writer.WriteStringValue(time);
                break;
            case Fields fields:
                Write(writer, fields);
                break;
            case IEnumerable several:
                WriteSeveral(writer, several);
                break;
            default:
                throw new ArgumentException($"{value.GetType()} is no value of JSON.", nameof(value));
        }
    }

    private static void WriteSeveral(Utf8JsonWriter writer, IEnumerable several)
    {
        writer.WriteStartArray();
        foreach (var one in several)
            Write(writer, one);
        writer.WriteEndArray();
    }
}
