namespace KvCluster.Tests.Grpc.Interop;

/// <summary>A test that needs node and the packages of tests/interop; skipped, with the reason, where they cannot be had.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class NodeFactAttribute : FactAttribute
{
    public NodeFactAttribute() => Skip = NodeScripts.SkipReason;
}
