using System.Text;

namespace KvCluster.ServiceDefaults.Telemetry;

/// <summary>
/// Converts names of instruments and attributes to those of Prometheus, by the rules that it applies to OTLP, so that a dashboard's query finds a metric
/// whether it was scraped or pushed.
/// </summary>
internal static class MetricName
{
    /// <summary>"kvcluster.node.request.duration" in "s" becomes kvcluster_node_request_duration_seconds; counters end in _total.</summary>
    public static string Of(string name, string? unit, MetricKind kind)
    {
        var text = new StringBuilder(Cleaned(name));
        if (UnitOf(unit, kind) is { Length: > 0 } suffix && !text.ToString().Split('_').Contains(suffix))
            text.Append('_').Append(suffix);
        if (kind.IsMonotonic && !text.ToString().EndsWith("_total", StringComparison.Ordinal))
            text.Append("_total");
        return text.ToString();
    }

    /// <summary>"rpc.method" becomes rpc_method.</summary>
    public static string OfLabel(string attribute) => Cleaned(attribute);

    // Units in braces count things that the name already states.
    private static string UnitOf(string? unit, MetricKind kind) => unit switch
    {
        null or "" => "",
        "1" => kind.IsGauge ? "ratio" : "",
        "s" => "seconds",
        "ms" => "milliseconds",
        "us" => "microseconds",
        "By" => "bytes",
        "%" => "percent",
        _ when unit.StartsWith('{') => "",
        _ => Cleaned(unit),
    };

    private static string Cleaned(string name)
    {
        var text = new StringBuilder(name.Length);
        foreach (var c in name)
        {
            if (char.IsAsciiLetterOrDigit(c))
                text.Append(c);
            else if (text.Length > 0 && text[^1] != '_')
                text.Append('_');
        }
        return text.Length > 0 && text[^1] == '_' ? text.ToString(0, text.Length - 1) : text.ToString();
    }
}
