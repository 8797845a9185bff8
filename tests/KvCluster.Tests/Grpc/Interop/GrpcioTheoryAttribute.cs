namespace KvCluster.Tests.Grpc.Interop;

/// <summary>A test that needs Python's grpcio; skipped, with the reason, where it is missing.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class GrpcioTheoryAttribute : TheoryAttribute
{
    public GrpcioTheoryAttribute() => Skip = Python.SkipReason;
}
