namespace KvCluster.Tests.Node;

/// <summary>A test against a real program; skipped, by its name, where neither PATH nor the tools beside the repository have it.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class ToolFactAttribute : FactAttribute
{
    public ToolFactAttribute(string program)
    {
        if (EtcdProcess.PathOf(program) is null)
            Skip = $"'{program}' is not in PATH";
    }
}
