namespace KvCluster.Cli.Selftest;

/// <summary>What a scan was to return and what it returned. Keys are in hexadecimal, which sorts like their bytes.</summary>
/// <param name="What">How a failure names the scan.</param>
/// <param name="Stable">Keys of its range that are there all the time, ascending.</param>
/// <param name="Keys">What it returned, in its order.</param>
/// <param name="Reverse">It was descending.</param>
/// <param name="Limit">The maximum number of keys; 0 means all.</param>
internal sealed record ScanResult(string What, IReadOnlyList<string> Stable, IReadOnlyList<string> Keys, bool Reverse, int Limit)
{
    /// <summary>Other keys may come and go, so only the stable ones must be there, up to where the limit has ended the scan.</summary>
    /// <exception cref="SelftestFailure">A key is repeated, out of order, missing, or beyond the limit.</exception>
    public void Judge()
    {
        SelftestFailure.Unless(Limit == 0 || Keys.Count <= Limit, $"{What}: at most {Limit} keys were expected, and {Keys.Count} were returned");
        for (var index = 1; index < Keys.Count; index++)
        {
            var order = string.CompareOrdinal(Keys[index - 1], Keys[index]);
            SelftestFailure.Unless(order != 0, $"{What}: each key was expected once, and 0x{Keys[index]} was returned twice");
            SelftestFailure.Unless(order < 0 != Reverse, $"{What}: keys in order were expected, and 0x{Keys[index]} came after 0x{Keys[index - 1]}");
        }
        var isCut = Limit > 0 && Keys.Count == Limit;
        var expected = isCut ? Stable.Where(key => key == Keys[^1] || string.CompareOrdinal(key, Keys[^1]) < 0 != Reverse).ToList() : Stable;
        var missing = expected.Except(Keys, StringComparer.Ordinal).ToList();
        SelftestFailure.Unless(missing.Count == 0, $"{What}: {expected.Count} keys that were there all the time were expected, and {missing.Count} are "
            + $"missing, the first 0x{missing.FirstOrDefault()}");
    }
}
