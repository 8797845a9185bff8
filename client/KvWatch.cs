using KvCluster.V1;

namespace KvCluster.Client;

/// <summary>What a watch observes, and from where on.</summary>
public sealed record KvWatch
{
    /// <summary>Only keys with this prefix; empty means all.</summary>
    public KvKey Prefix { get; init; }

    /// <summary>Only the key that is the prefix.</summary>
    public bool IsOneKey { get; init; }

    /// <summary>First key, inclusive; empty means the first of all.</summary>
    public KvKey Start { get; init; }

    /// <summary>End, exclusive; empty means after the last.</summary>
    public KvKey End { get; init; }

    /// <summary>Go on after the message that had this token (<see cref="KvWatchMessage.Token"/>), of this client or another one. Null: begin anew.</summary>
    public string? After { get; init; }

    /// <summary>Begin after these positions, for example that of an answer, in their shards. Not together with <see cref="After"/>.</summary>
    public IReadOnlyList<ShardPosition> AfterPositions { get; init; } = [];

    /// <summary>
    /// First return the entries that there are, and then every change after them (<see cref="KvWatchMessage.IsInitial"/>). Without effect on shards that the
    /// watch goes on in.
    /// </summary>
    public bool Initial { get; init; }

    /// <summary>
    /// Return a removed range as the deletes of the keys that were in it, by what this watch has returned before; none if it had no key. Only with
    /// <see cref="Initial"/>, and not with <see cref="After"/> or <see cref="AfterPositions"/>, because the watch must know all keys. It keeps them in memory.
    /// </summary>
    public bool ExpandRanges { get; init; }

    /// <summary>Omit the values.</summary>
    public bool KeysOnly { get; init; }

    /// <summary>Also return what a change has replaced, where it is known.</summary>
    public bool WithPrevious { get; init; }

    /// <summary>Also return changes of sets whose key is in the range.</summary>
    public bool WithSets { get; init; }

    /// <exception cref="KvInvalidRequestException">The token is none, or the properties do not go together.</exception>
    internal WatchRequest ToMessage()
    {
        if (ExpandRanges && (!Initial || After is not null || AfterPositions.Count > 0))
            throw new KvInvalidRequestException(
                KvReasons.BadRequest, $"A watch with {nameof(ExpandRanges)} must know all keys, so it needs {nameof(Initial)}, and neither {nameof(After)} nor "
                + $"{nameof(AfterPositions)}; nothing was watched.");
        var request = new WatchRequest
        {
            Prefix = Prefix.ToByteString(),
            Exact = IsOneKey,
            Start = Start.ToByteString(),
            End = End.ToByteString(),
            Initial = Initial,
            KeysOnly = KeysOnly,
            WithPrevious = WithPrevious,
            WithSets = WithSets,
        };
        if (AfterPositions.GroupBy(static position => position.Shard).FirstOrDefault(static same => same.Count() > 1) is { } twice)
            throw new KvInvalidRequestException(
                KvReasons.BadRequest, $"A watch begins after two positions of shard {twice.Key}; nothing was watched. Pass the position to go on from.");
        if (After is not null)
            request.After.Add(WatchToken.Parse(After));
        else
            request.After.Add(AfterPositions.Select(
                static position => new Position { Shard = position.Shard, Lineage = position.Lineage, Etag = position.Etag.ToMessage() }));
        return request;
    }
}
