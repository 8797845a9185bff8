namespace KvCluster.ServiceDefaults.Telemetry;

/// <summary>Whom exported telemetry is of.</summary>
/// <param name="Name">Of the program, unless OTEL_SERVICE_NAME gives another: "kv-node".</param>
/// <param name="Instance">Tells its processes apart, unless OTEL_RESOURCE_ATTRIBUTES does: "node-1".</param>
internal sealed record ExportedService(string Name, string Instance);
