namespace KvCluster.Benchmarks.Grpc;

/// <summary>The task of one client process.</summary>
/// <param name="System">Ours or the bare one.</param>
/// <param name="IsDuplex">Items of streams instead of unary calls.</param>
/// <param name="Callers">The number of callers that wait for an answer at any time.</param>
/// <param name="Port">The server's port on loopback.</param>
/// <param name="ServerProcess">The server's process id, to read its processor time.</param>
internal sealed record EchoPlan(string System, bool IsDuplex, int Callers, int Port, int ServerProcess);
