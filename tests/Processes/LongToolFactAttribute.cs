namespace KvCluster.Processes;

/// <summary>A test of minutes with programs. Without KV_LONG=1 it is skipped with the reason.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class LongToolFactAttribute : FactAttribute
{
    public LongToolFactAttribute(params string[] programs) => Skip = Environment.GetEnvironmentVariable("KV_LONG") != "1"
        ? "takes minutes: only with KV_LONG=1"
        : new ToolFactAttribute(programs).Skip;
}
