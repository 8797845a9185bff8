using KvCluster.V1;

namespace KvCluster.Node.Watching;

/// <summary>One change of a key, a range or a set, decoded from its record (kv.proto, Event). The memory is that of the record and never changes.</summary>
internal struct WatchEvent
{
    public EventKind Kind;
    public EventReason Reason;
    public Etag Etag;

    /// <summary>The key, that of the set, or the first one of the range.</summary>
    public ReadOnlyMemory<byte> Key;

    /// <summary>The end of the range; of a set of which a part is removed, the member at which that ends. Empty: there is none.</summary>
    public ReadOnlyMemory<byte> End;

    /// <summary>The value of a put.</summary>
    public ReadOnlyMemory<byte> Value;

    /// <summary>The member of a set.</summary>
    public ReadOnlyMemory<byte> Member;

    /// <summary>Whether the previous etag and value are known.</summary>
    public bool IsPreviousKnown;

    /// <summary>The etag that the key had; <see cref="Etag.None"/>: there was no key.</summary>
    public Etag PreviousEtag;

    /// <summary>The value that it had.</summary>
    public ReadOnlyMemory<byte> PreviousValue;

    /// <summary>Whether it is of a set, and not of a key.</summary>
    public readonly bool IsOfSet => Kind is EventKind.SetAdd or EventKind.SetRemove;

    /// <summary>Whether it replaces or removes the value of one key.</summary>
    public readonly bool ReplacesValue => Kind is EventKind.Put or EventKind.Delete;

    /// <summary>Whether it is in a range.</summary>
    public readonly bool IsIn(in WatchedRange range) => Kind == EventKind.DeleteRange ? range.Meets(Key.Span, End.Span) : range.Contains(Key.Span);
}
