namespace KvCluster.Benchmarks.Grpc;

/// <summary>What one client process is to do.</summary>
/// <param name="System">Ours or the bare one.</param>
/// <param name="IsDuplex">Items of streams rather than unary calls.</param>
/// <param name="Callers">How many wait for an answer at any time.</param>
/// <param name="Port">Of the server, on loopback.</param>
/// <param name="ServerProcess">Its process id, to read its processor time.</param>
internal sealed record EchoPlan(string System, bool IsDuplex, int Callers, int Port, int ServerProcess);
