namespace KvCluster.Benchmarks.Grpc;

/// <summary>What one client process measured, per call or item.</summary>
internal sealed record EchoResult(double PerSecond, double ClientCpuMicroseconds, double ServerCpuMicroseconds, double ClientBytes);
