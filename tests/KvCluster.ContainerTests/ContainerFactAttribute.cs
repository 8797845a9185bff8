namespace KvCluster.ContainerTests;

/// <summary>A test with containers. Without a Docker engine, or without images, it is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class ContainerFactAttribute : FactAttribute
{
    public ContainerFactAttribute() => Skip = Engine.Lacks;
}
