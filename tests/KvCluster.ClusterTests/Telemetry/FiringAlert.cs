namespace KvCluster.ClusterTests.Telemetry;

/// <summary>One series for which an alert fires, as Prometheus tells it.</summary>
/// <param name="Name">Of the alert.</param>
/// <param name="Labels">Of the series.</param>
/// <param name="Value">Of the alert's expression.</param>
internal sealed record FiringAlert(string Name, string Labels, string Value)
{
    public override string ToString() => $"{Name}{{{Labels}}} = {Value}";
}
