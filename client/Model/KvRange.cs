namespace KvCluster.Client;

/// <summary>A range of keys.</summary>
public sealed record KvRange
{
    /// <summary>Only keys with this prefix; empty means all.</summary>
    public KvKey Prefix { get; init; }

    /// <summary>First key, inclusive; empty means the first of all.</summary>
    public KvKey Start { get; init; }

    /// <summary>End, exclusive; empty means after the last.</summary>
    public KvKey End { get; init; }

    /// <summary>Required to delete a range without prefix, start and end, so that nobody deletes all keys by mistake. Reads do not need it.</summary>
    public bool All { get; init; }
}

/// <summary>Which key a read returns, by its place beside the requested one in key order.</summary>
public enum KvNearest
{
    /// <summary>The key itself.</summary>
    Exact = V1.Nearest.Exact,

    /// <summary>The key itself, or the greatest one less than it.</summary>
    Floor = V1.Nearest.Floor,

    /// <summary>The greatest key less than it.</summary>
    Lower = V1.Nearest.Lower,

    /// <summary>The key itself, or the least one greater than it.</summary>
    Ceiling = V1.Nearest.Ceiling,

    /// <summary>The least key greater than it.</summary>
    Higher = V1.Nearest.Higher,
}
