using Grpc.Core;

namespace KvCluster.Router.Api;

/// <summary>Computes the deadlines of calls.</summary>
internal static class Deadlines
{
    private const long MarginMsMax = 500;

    /// <summary>
    /// The deadline for an answer that combines those of many nodes. It is a little earlier than the caller's, so that the caller still learns which nodes
    /// did not answer.
    /// </summary>
    public static long OfAll(ServerCallContext context, TimeSpan otherwise)
    {
        var left = Of(context, otherwise) - Environment.TickCount64;
        return Environment.TickCount64 + left - Math.Min(left / 10, MarginMsMax);
    }

    /// <summary>The caller's deadline in <see cref="Environment.TickCount64"/>; for a caller without one, <paramref name="otherwise"/> from now.</summary>
    public static long Of(ServerCallContext context, TimeSpan otherwise) => Environment.TickCount64 + (long)(context.Deadline == DateTime.MaxValue
        ? otherwise.TotalMilliseconds
        : Math.Max(0, (context.Deadline - DateTime.UtcNow).TotalMilliseconds));
}
