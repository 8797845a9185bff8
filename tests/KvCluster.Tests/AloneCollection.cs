namespace KvCluster.Tests;

/// <summary>
/// Tests of what the whole process has once, its memory, what it has allocated and its thread pool. They run one after the other, and nothing runs beside them.
/// </summary>
[CollectionDefinition(Name, DisableParallelization = true)]
public sealed class AloneCollection
{
    public const string Name = "alone in the process";
}
