using System.Collections.Immutable;
using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>A message of a watch: the events of one or several changes of a shard, or only the position that the watch has come to.</summary>
/// <param name="Position">Everything of the shard up to here was returned. Default for entries that a watch begins with, except their last message.</param>
/// <param name="Events">
/// The events, in the order of their etags; those of one atomic change are in one message. None: the message is a bookmark, which comes from each shard at
/// least once a second.
/// </param>
/// <param name="IsInitial">
/// The message is part of the beginning of a watch with <see cref="KvWatch.Initial"/>: its events are entries, as puts, or changes of keys whose entries were
/// returned before. Whoever applies all events in the order in which they come, and obeys <see cref="Forget"/>, has the state of the range when the beginning
/// is complete.
/// </param>
public sealed record KvWatchMessage(ShardPosition Position, IReadOnlyList<KvEvent> Events, bool IsInitial)
{
    /// <summary>
    /// For <see cref="KvWatch.After"/>: what follows this message, in all shards, also in another process and after a failover. Null until every shard has told
    /// where the watch begins. Made when it is asked for, unless it was set.
    /// </summary>
    public string? Token
    {
        get => field ?? (Positions is null ? null : WatchToken.Of(Positions.Values));
        init;
    }

    /// <summary>The positions of all shards with this message; null if some are not known.</summary>
    internal ImmutableSortedDictionary<uint, Position>? Positions { get; init; }

    /// <summary>With this message all entries of the range were returned. Said once by a watch that begins with entries.</summary>
    public bool IsInitialComplete { get; init; }

    /// <summary>
    /// If it is not null: the entries of this range begin anew, because the changes that were made to them meanwhile cannot be had any more. Whoever keeps
    /// entries forgets those of all keys of the range. Only while the beginning is not complete.
    /// </summary>
    public KvRange? Forget { get; init; }

    /// <summary>Whether it has only a position.</summary>
    public bool IsBookmark => Events.Count == 0 && !IsInitial && Forget is null;
}

/// <summary>What happened.</summary>
public enum KvEventKind
{
    /// <summary>Of a newer version than this library.</summary>
    Unknown,

    /// <summary>A key was set.</summary>
    Put,

    /// <summary>A key was removed, or was to be removed and did not exist.</summary>
    Delete,

    /// <summary>
    /// All keys from <see cref="KvEvent.Key"/> to <see cref="KvEvent.RangeEnd"/> were removed, of those that are watched: the range is told only as far as the
    /// watch goes. A watch of one key gets a delete, and one with <see cref="KvWatch.ExpandRanges"/> a delete of each key that was in the range.
    /// </summary>
    DeleteRange,

    /// <summary>A member was added to a set.</summary>
    SetAdd,

    /// <summary>A member was removed from a set, or all if <see cref="KvEvent.Member"/> is empty.</summary>
    SetRemove,

    /// <summary>The expiry of a key was changed.</summary>
    Touch,
}

/// <summary>Why it happened.</summary>
public enum KvEventReason
{
    /// <summary>Of a newer version than this library.</summary>
    Unknown,

    /// <summary>A caller did it.</summary>
    User,

    /// <summary>The key had expired.</summary>
    Expired,

    /// <summary>The session that owned the key has ended.</summary>
    SessionEnded,
}

/// <summary>A change of a key, a range or a set.</summary>
/// <param name="Kind">What happened.</param>
/// <param name="Reason">Why.</param>
/// <param name="Key">The key, the first one of the range, or the key of the set.</param>
/// <param name="Etag">The etag of the change.</param>
public sealed record KvEvent(KvEventKind Kind, KvEventReason Reason, KvKey Key, Etag Etag)
{
    /// <summary>
    /// The end of a range, exclusive; empty: that of the shard. Of a set from which all members were removed: only those before this one, unless it is empty.
    /// </summary>
    public KvKey RangeEnd { get; init; }

    /// <summary>The value of a put; empty with <see cref="KvWatch.KeysOnly"/>.</summary>
    public KvValue Value { get; init; }

    /// <summary>The member of a set.</summary>
    public KvKey Member { get; init; }

    /// <summary>Whether what follows is known. Only with <see cref="KvWatch.WithPrevious"/>, and if the change was recent when it was sent.</summary>
    public bool IsPreviousKnown { get; init; }

    /// <summary>The etag that the key had before; null, if known: there was no key.</summary>
    public Etag? PreviousEtag { get; init; }

    /// <summary>The value that it had.</summary>
    public KvValue PreviousValue { get; init; }
}
