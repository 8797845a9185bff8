namespace KvCluster.Tests.Grpc.Interop;

/// <summary>A test that runs a program of the machine; skipped, by its name, where there is no such program.</summary>
[AttributeUsage(AttributeTargets.Method)]
internal sealed class ToolFactAttribute : FactAttribute
{
    public ToolFactAttribute(string program)
    {
        if (Tools.Find(program) is null)
            Skip = $"'{program}' is neither in PATH nor among the shared tools";
    }
}
