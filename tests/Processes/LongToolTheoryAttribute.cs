namespace KvCluster.Processes;

/// <summary>A theory of minutes with programs. Without KV_LONG=1 it is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class LongToolTheoryAttribute : TheoryAttribute
{
    public LongToolTheoryAttribute(params string[] programs) => Skip = new LongToolFactAttribute(programs).Skip;
}
