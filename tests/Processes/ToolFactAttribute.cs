namespace KvCluster.Processes;

/// <summary>A test that runs programs of the machine; skipped, by their names, where there is no such program.</summary>
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

    /// <summary>What it runs.</summary>
    public IReadOnlyList<string> Programs { get; }
}
