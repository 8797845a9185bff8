using System.Text;
using System.Text.Json;

namespace KvCluster.Cli.Files;

/// <summary>
/// Reads a line of `kv export --output json` or `kv scan --output json`: <see cref="EntryDocument"/>. Names that it does not know are left out.
/// </summary>
internal static class EntryLine
{
    /// <exception cref="FormatException">It is none. The message continues a sentence that begins with the line.</exception>
    public static FileRecord Parse(long number, ReadOnlyMemory<byte> line)
    {
        try
        {
            using var document = JsonDocument.Parse(line);
            var entry = document.RootElement;
            if (entry.ValueKind != JsonValueKind.Object)
                throw new FormatException("is not an entry in JSON");
            return new FileRecord(number, BytesOf(entry, "key"), BytesOf(entry, "value")) { Left = LeftOf(entry), IsOwned = IsOwned(entry) };
        }
        catch (Exception e) when (e is JsonException or InvalidOperationException)
        {
            throw new FormatException("is not an entry in JSON", e);
        }
    }

    private static ReadOnlyMemory<byte> BytesOf(JsonElement entry, string name)
    {
        if (entry.TryGetProperty(name, out var text) && text.ValueKind == JsonValueKind.String)
            return Encoding.UTF8.GetBytes(text.GetString()!);
        return entry.TryGetProperty(name + "_base64", out var base64) && base64.ValueKind == JsonValueKind.String && base64.TryGetBytesFromBase64(out var bytes)
            ? bytes
            : throw new FormatException($"has neither {name} nor {name}_base64");
    }

    private static bool IsOwned(JsonElement entry) => entry.TryGetProperty("owner", out var owner) && owner.ValueKind != JsonValueKind.Null;

    private static TimeSpan? LeftOf(JsonElement entry)
    {
        if (!entry.TryGetProperty("ttl_ms", out var left) || left.ValueKind == JsonValueKind.Null)
            return null;
        return left.ValueKind == JsonValueKind.Number && left.TryGetDouble(out var milliseconds)
            ? TimeToLive.OfMilliseconds(milliseconds)
            : throw new FormatException("has a ttl_ms that is not a number");
    }
}
