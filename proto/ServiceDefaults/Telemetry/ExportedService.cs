namespace KvCluster.ServiceDefaults.Telemetry;

/// <summary>The identity of exported telemetry.</summary>
/// <param name="Name">The name of the program, for example "kv-node", unless OTEL_SERVICE_NAME overrides it.</param>
/// <param name="Instance">Distinguishes its processes, for example "node-1", unless OTEL_RESOURCE_ATTRIBUTES overrides it.</param>
internal sealed record ExportedService(string Name, string Instance);
