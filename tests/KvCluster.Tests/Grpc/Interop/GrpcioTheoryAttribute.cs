namespace KvCluster.Tests.Grpc.Interop;

/// <summary>A test that needs Python's grpcio. Where it is missing, the test is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class GrpcioTheoryAttribute : TheoryAttribute
{
    public GrpcioTheoryAttribute() => Skip = Python.SkipReason;
}
