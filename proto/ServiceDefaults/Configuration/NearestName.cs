namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>Suggests a name for a misspelled one.</summary>
internal static class NearestName
{
    /// <summary>", did you mean 'x'?" if one of the names is close enough to be meant; otherwise "".</summary>
    public static string Question(string name, IEnumerable<string> names)
    {
        var nearest = names.MinBy(other => Distance(name, other));
        return nearest is not null && Distance(name, nearest) <= Math.Max(2, name.Length / 4) ? $", did you mean '{nearest}'?" : "";
    }

    /// <summary>The number of letters to insert, delete or replace (Levenshtein distance).</summary>
    private static int Distance(string from, string to)
    {
        var row = Enumerable.Range(0, to.Length + 1).ToArray();
        for (var i = 1; i <= from.Length; i++)
        {
            var diagonal = row[0];
            row[0] = i;
            for (var j = 1; j <= to.Length; j++)
            {
                var above = row[j];
                row[j] = from[i - 1] == to[j - 1] ? diagonal : 1 + Math.Min(diagonal, Math.Min(above, row[j - 1]));
                diagonal = above;
            }
        }
        return row[^1];
    }
}
