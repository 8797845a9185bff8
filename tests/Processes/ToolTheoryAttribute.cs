namespace KvCluster.Processes;

/// <summary>As <see cref="ToolFactAttribute"/>, with data.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class ToolTheoryAttribute : TheoryAttribute
{
    public ToolTheoryAttribute(params string[] programs) => Skip = new ToolFactAttribute(programs).Skip;
}
