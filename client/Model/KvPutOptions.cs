namespace KvCluster.Client;

/// <summary>What is special about a put.</summary>
public sealed record KvPutOptions : KvChangeOptions
{
    /// <summary>
    /// How long the key lives, from a millisecond to 100 years. It ends at most 250 ms late. Null means until it is deleted, and so a put without it removes
    /// the expiry that the key had, unless <see cref="KeepExpiry"/> is set.
    /// </summary>
    public TimeSpan? TimeToLive { get; init; }

    /// <summary>
    /// A session with which the key ends. It must be of the key's shard. Null means none, and so a put without it takes the key from the session that owned it,
    /// unless
    /// <see cref="KeepOwner"/> is set.
    /// </summary>
    public KvSession? Owner { get; init; }

    /// <summary>
    /// The key keeps the moment at which it expires, if it exists and has one. Not together with <see cref="TimeToLive"/> or <see cref="Sequence"/>.
    /// </summary>
    public bool KeepExpiry { get; init; }

    /// <summary>The key keeps the session that owns it, if it exists and one does. Not together with <see cref="Owner"/> or <see cref="Sequence"/>.</summary>
    public bool KeepOwner { get; init; }

    /// <summary>The shard appends the next number to the key: 20 decimal digits, from 1 on. No number under a prefix is given twice.</summary>
    public bool Sequence { get; init; }

    /// <summary>A put on a condition, of which nothing else is special; null means a put without one.</summary>
    public static implicit operator KvPutOptions(KvCondition? condition) => new() { Condition = condition };

    /// <summary>Whether nothing is special about what is put but the condition, if there is one.</summary>
    internal bool HasOnlyCondition => TimeToLive is null && Owner is null && !KeepExpiry && !KeepOwner && !Sequence;

    internal static ulong Milliseconds(TimeSpan timeToLive) => timeToLive >= TimeSpan.FromMilliseconds(1)
        ? (ulong)timeToLive.TotalMilliseconds
        : throw new ArgumentOutOfRangeException(nameof(timeToLive), timeToLive, "A key lives for at least a millisecond.");
}
