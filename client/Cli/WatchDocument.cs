using KvCluster.Client;

namespace KvCluster.Cli;

/// <summary>An event of `watch` in JSON; bytes as in <see cref="EntryDocument"/>.</summary>
internal sealed record WatchDocument
{
    public required string Kind { get; init; }

    public required string Reason { get; init; }

    public string? Key { get; init; }

    public string? KeyBase64 { get; init; }

    public string? Value { get; init; }

    public string? ValueBase64 { get; init; }

    public string? Member { get; init; }

    public string? MemberBase64 { get; init; }

    /// <summary>Of a range; empty: the end of the shard.</summary>
    public string? RangeEnd { get; init; }

    public string? RangeEndBase64 { get; init; }

    public required string Etag { get; init; }

    public required uint Shard { get; init; }

    public required bool Initial { get; init; }

    public required bool PreviousKnown { get; init; }

    public string? PreviousEtag { get; init; }

    public string? PreviousValue { get; init; }

    public string? PreviousValueBase64 { get; init; }

    /// <summary>For `--after`; only of the last event of a message, because the events of one change belong together.</summary>
    public string? Token { get; init; }

    /// <param name="message">The message.</param>
    /// <param name="happened">One of its events.</param>
    /// <param name="keysOnly">Values were not asked for.</param>
    /// <param name="token">The token, if the event is the last one.</param>
    public static WatchDocument Of(KvWatchMessage message, KvEvent happened, bool keysOnly, string? token)
    {
        var hasValue = happened.Kind == KvEventKind.Put && !keysOnly;
        var isOfSet = happened.Kind is KvEventKind.SetAdd or KvEventKind.SetRemove;
        var hadValue = happened is { IsPreviousKnown: true, PreviousEtag: not null };
        var (key, keyBase64) = Text.ForJson(happened.Key.Span);
        var (value, valueBase64) = ForJson(happened.Value, hasValue);
        var (member, memberBase64) = ForJson(happened.Member, isOfSet);
        var (rangeEnd, rangeEndBase64) = ForJson(happened.RangeEnd, happened.Kind == KvEventKind.DeleteRange);
        var (previous, previousBase64) = ForJson(happened.PreviousValue, hadValue);
        return new WatchDocument
        {
            Kind = NameOf(happened.Kind),
            Reason = NameOf(happened.Reason),
            Key = key,
            KeyBase64 = keyBase64,
            Value = value,
            ValueBase64 = valueBase64,
            Member = member,
            MemberBase64 = memberBase64,
            RangeEnd = rangeEnd,
            RangeEndBase64 = rangeEndBase64,
            Etag = happened.Etag.ToString(),
            Shard = message.Position.Shard,
            Initial = message.IsInitial,
            PreviousKnown = happened.IsPreviousKnown,
            PreviousEtag = happened.PreviousEtag?.ToString(),
            PreviousValue = previous,
            PreviousValueBase64 = previousBase64,
            Token = token,
        };
    }

    public Fields ToFields() => new()
    {
        { "kind", Kind },
        { "reason", Reason },
        { "key", Key },
        { "key_base64", KeyBase64 },
        { "value", Value },
        { "value_base64", ValueBase64 },
        { "member", Member },
        { "member_base64", MemberBase64 },
        { "range_end", RangeEnd },
        { "range_end_base64", RangeEndBase64 },
        { "etag", Etag },
        { "shard", Shard },
        { "initial", Initial },
        { "previous_known", PreviousKnown },
        { "previous_etag", PreviousEtag },
        { "previous_value", PreviousValue },
        { "previous_value_base64", PreviousValueBase64 },
        { "token", Token },
    };

    /// <summary>The name of a kind, for people and scripts.</summary>
    public static string NameOf(KvEventKind kind) => kind switch
    {
        KvEventKind.Put => "put",
        KvEventKind.Delete => "delete",
        KvEventKind.DeleteRange => "delete_range",
        KvEventKind.SetAdd => "set_add",
        KvEventKind.SetRemove => "set_remove",
        KvEventKind.Touch => "touch",
        _ => "unknown",
    };

    /// <summary>Why a key or a member is gone, for people; empty if the event is no removal.</summary>
    public static string RemovalOf(KvEvent happened) => happened switch
    {
        { Kind: not (KvEventKind.Delete or KvEventKind.DeleteRange or KvEventKind.SetRemove) } => "",
        { Reason: KvEventReason.Expired } => "expired",
        { Reason: KvEventReason.SessionEnded } => "session ended",
        _ => "deleted",
    };

    private static string NameOf(KvEventReason reason) => reason switch
    {
        KvEventReason.User => "user",
        KvEventReason.Expired => "expired",
        KvEventReason.SessionEnded => "session_ended",
        _ => "unknown",
    };

    private static (string? Text, string? Base64) ForJson(ReadOnlyMemory<byte> bytes, bool isPart) => isPart ? Text.ForJson(bytes.Span) : default;
}

/// <summary>A line of `watch` in JSON that is no event: where the watch is.</summary>
internal sealed record WatchPositionDocument
{
    public const string Bookmark = "bookmark";

    /// <summary>All entries were printed that there were.</summary>
    public const string InitialComplete = "initial_complete";

    /// <summary><see cref="Bookmark"/> or <see cref="InitialComplete"/>.</summary>
    public required string Kind { get; init; }

    /// <summary>For `--after`.</summary>
    public required string Token { get; init; }

    public Fields ToFields() => new() { { "kind", Kind }, { "token", Token } };
}

/// <summary>
/// A line of `watch --initial` in JSON: the entries of a range begin anew, and those printed before are to be forgotten. Bytes as in
/// <see cref="EntryDocument"/>.
/// </summary>
internal sealed record WatchForgetDocument
{
    public string Kind => "forget";

    public string? Key { get; init; }

    public string? KeyBase64 { get; init; }

    /// <summary>Empty: all keys from the first one on.</summary>
    public string? RangeEnd { get; init; }

    public string? RangeEndBase64 { get; init; }

    public Fields ToFields() => new()
    {
        { "kind", Kind }, { "key", Key }, { "key_base64", KeyBase64 }, { "range_end", RangeEnd }, { "range_end_base64", RangeEndBase64 },
    };

    public static WatchForgetDocument Of(KvRange range)
    {
        var (key, keyBase64) = Text.ForJson(range.Start.Span);
        var (end, endBase64) = Text.ForJson(range.End.Span);
        return new WatchForgetDocument { Key = key, KeyBase64 = keyBase64, RangeEnd = end, RangeEndBase64 = endBase64 };
    }
}
