using KvCluster.Node.Api.Errors;

namespace KvCluster.Node.Api.Calls;

/// <summary>Ends calls that are refused before anything was waited for.</summary>
internal static class Refusals
{
    public static ValueTask Send<TSink>(TSink sink, ApiError refusal)
        where TSink : struct, IReplySink
    {
        sink.Refuse(refusal);
        return ValueTask.CompletedTask;
    }
}
