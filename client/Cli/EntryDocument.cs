using KvCluster.Client;

namespace KvCluster.Cli;

/// <summary>An entry in JSON. Bytes that are not UTF-8 are base64 under another name, so that nothing is lost.</summary>
internal sealed record EntryDocument(string? Key, string? KeyBase64, bool? Found, string? Value, string? ValueBase64, string Etag)
{
    /// <summary>For how many milliseconds the key lives; left out if it does not expire.</summary>
    public double? TtlMs { get; private init; }

    /// <summary>The etag of the opening of the session that owns the key; left out if none does.</summary>
    public string? Owner { get; private init; }

    /// <summary>For an entry whose value was not requested, which differs from an empty value.</summary>
    public static EntryDocument WithoutValue(ReadOnlySpan<byte> key, Etag etag) => Of(key, [], etag) with { Value = null };

    /// <summary>The same with what ends the key besides a delete.</summary>
    public EntryDocument With(in KvLife life) => this with { TtlMs = life.Left?.TotalMilliseconds, Owner = life.Owner?.ToString() };

    public Fields ToFields()
    {
        var fields = new Fields
        {
            { "key", Key }, { "key_base64", KeyBase64 }, { "found", Found }, { "value", Value }, { "value_base64", ValueBase64 }, { "etag", Etag },
        };
        fields.AddUnlessNull("ttl_ms", TtlMs);
        fields.AddUnlessNull("owner", Owner);
        return fields;
    }

    public static EntryDocument Of(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, Etag etag, bool? found = null)
    {
        var (keyText, keyBase64) = Text.ForJson(key);
        var (valueText, valueBase64) = Text.ForJson(value);
        return new EntryDocument(keyText, keyBase64, found, valueText, valueBase64, etag.ToString());
    }
}

/// <summary>The answer to `get` in JSON; bytes as in <see cref="EntryDocument"/>.</summary>
internal sealed record GetDocument(
    string? Key, string? KeyBase64, bool Found, string? Value, string? ValueBase64, string? Etag, uint Shard, string Position, double? AgeMs)
{
    /// <inheritdoc cref="EntryDocument.TtlMs"/>
    public double? TtlMs { get; private init; }

    /// <inheritdoc cref="EntryDocument.Owner"/>
    public string? Owner { get; private init; }

    public Fields ToFields()
    {
        var fields = new Fields
        {
            { "key", Key },
            { "key_base64", KeyBase64 },
            { "found", Found },
            { "value", Value },
            { "value_base64", ValueBase64 },
            { "etag", Etag },
            { "shard", Shard },
            { "position", Position },
            { "age_ms", AgeMs },
        };
        fields.AddUnlessNull("ttl_ms", TtlMs);
        fields.AddUnlessNull("owner", Owner);
        return fields;
    }

    public static GetDocument Of(ReadOnlySpan<byte> key, in GetResult result)
    {
        var entry = EntryDocument.Of(key, result.Value.Span, result.Etag);
        return result.Found
            ? new(
                entry.Key, entry.KeyBase64, true, entry.Value, entry.ValueBase64, entry.Etag, result.Position.Shard, result.Position.Etag.ToString(),
                result.Age?.TotalMilliseconds)
            {
                TtlMs = result.Life.Left?.TotalMilliseconds,
                Owner = result.Life.Owner?.ToString(),
            }
            : new(entry.Key, entry.KeyBase64, false, null, null, null, result.Position.Shard, result.Position.Etag.ToString(), result.Age?.TotalMilliseconds);
    }
}
