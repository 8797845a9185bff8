using System.Globalization;

namespace KvCluster.Node.Coordination;

/// <summary>When the coordinator's data was saved, as the value of <see cref="CoordinatorKeys.Snapshot"/>.</summary>
internal static class SnapshotTime
{
    private static readonly long SecondsMax = DateTimeOffset.MaxValue.ToUnixTimeSeconds();

    public static string Format(DateTimeOffset taken) => taken.ToUnixTimeSeconds().ToString(CultureInfo.InvariantCulture);

    /// <summary>
    /// Null if nothing is known. A value that is no time counts as nothing, because scripts of operators put it, and a mistake in one must not keep a node from
    /// its map.
    /// </summary>
    public static DateTimeOffset? Parse(string? text) =>
        long.TryParse(text?.Trim(), NumberStyles.None, CultureInfo.InvariantCulture, out var seconds) && seconds <= SecondsMax
            ? DateTimeOffset.FromUnixTimeSeconds(seconds)
            : null;
}
