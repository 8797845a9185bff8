namespace KvCluster.ClusterTests.Telemetry;

/// <summary>One series for which an alert fires, as Prometheus reports it.</summary>
/// <param name="Name">The alert's name.</param>
/// <param name="Labels">The labels of the series.</param>
/// <param name="Value">The value of the alert's expression.</param>
internal sealed record FiringAlert(string Name, string Labels, string Value)
{
    public override string ToString() => $"{Name}{{{Labels}}} = {Value}";
}
