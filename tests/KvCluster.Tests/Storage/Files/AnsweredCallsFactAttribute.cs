namespace KvCluster.Tests.Storage.Files;

/// <summary>A test that uses <see cref="AnsweredCalls"/>. Where the kernel does not allow that, the test is skipped and says why.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class AnsweredCallsFactAttribute : FactAttribute
{
    private static readonly Lazy<string?> Obstacle = new(AnsweredCalls.Obstacle);

    public AnsweredCallsFactAttribute() => Skip = Obstacle.Value;
}
