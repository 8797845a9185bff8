using Grpc.Core;

namespace KvCluster.Router.Api;

/// <summary>When calls give up.</summary>
internal static class Deadlines
{
    /// <summary>The caller's deadline in <see cref="Environment.TickCount64"/>; for a caller without one, <paramref name="otherwise"/> from now.</summary>
    public static long Of(ServerCallContext context, TimeSpan otherwise) => Environment.TickCount64 + (long)(context.Deadline == DateTime.MaxValue
        ? otherwise.TotalMilliseconds
        : Math.Max(0, (context.Deadline - DateTime.UtcNow).TotalMilliseconds));
}
