using Grpc.Core;

namespace KvCluster.Router.Api;

/// <summary>When calls give up.</summary>
internal static class Deadlines
{
    private const long MarginMsMax = 500;

    /// <summary>The same for an answer that is made of many nodes': a little earlier, so that the caller still hears of those that did not answer.</summary>
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
