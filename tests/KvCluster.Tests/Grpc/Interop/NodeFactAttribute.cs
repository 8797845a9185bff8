namespace KvCluster.Tests.Grpc.Interop;

/// <summary>A test that needs node and the packages of tests/interop. Where they are missing, the test is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class NodeFactAttribute : FactAttribute
{
    public NodeFactAttribute() => Skip = NodeScripts.SkipReason;
}
