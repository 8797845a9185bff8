namespace KvCluster.Replication.Protocol;

/// <summary>SplitMix64 (Steele, Lea, Flood 2014): the protocol's only randomness, repeatable from its seed.</summary>
internal sealed class SeededRandom(ulong seed)
{
    private ulong _state = seed;

    /// <summary>A number from <paramref name="least"/> (inclusive) to <paramref name="end"/> (exclusive).</summary>
    public long Between(long least, long end)
    {
        Invariant.Check(least < end, $"The range of random numbers is empty: {least} to {end}.");
        return least + (long)(Next() % (ulong)(end - least));
    }

    private ulong Next()
    {
        var z = _state += 0x9E3779B97F4A7C15;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
        return z ^ (z >> 31);
    }
}
