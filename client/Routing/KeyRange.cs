namespace KvCluster.Client.Routing;

/// <summary>Arithmetic on key ranges.</summary>
internal static class KeyRange
{
    /// <summary>The exclusive end of the keys with a prefix. Empty if there is none, that is, for an empty prefix or one of 0xFF bytes only.</summary>
    public static byte[] EndOfPrefix(ReadOnlySpan<byte> prefix)
    {
        var kept = prefix.TrimEnd((byte)0xFF);
        if (kept.IsEmpty)
            return [];
        var end = kept.ToArray();
        end[^1]++;
        return end;
    }
}
