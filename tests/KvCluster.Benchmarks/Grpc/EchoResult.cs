namespace KvCluster.Benchmarks.Grpc;

/// <summary>The measurements of one client process, per call or item.</summary>
internal sealed record EchoResult(double PerSecond, double ClientCpuMicroseconds, double ServerCpuMicroseconds, double ClientBytes);
