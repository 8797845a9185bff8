namespace KvCluster.Tests.Grpc.Interop;

/// <inheritdoc cref="NodeFactAttribute"/>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class NodeTheoryAttribute : TheoryAttribute
{
    public NodeTheoryAttribute() => Skip = NodeScripts.SkipReason;
}
