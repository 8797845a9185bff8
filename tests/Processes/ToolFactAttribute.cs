namespace KvCluster.Processes;

/// <summary>A test that runs external programs. If one is missing, the test is skipped and names it.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class ToolFactAttribute : FactAttribute
{
    public ToolFactAttribute(params string[] programs)
    {
        Programs = programs;
        var missing = programs.Where(program => Tools.Find(program) is null).ToList();
        if (missing.Count > 0)
            Skip = $"neither in PATH nor among the shared tools: {string.Join(", ", missing)}";
    }

    /// <summary>The programs that it runs.</summary>
    public IReadOnlyList<string> Programs { get; }
}
