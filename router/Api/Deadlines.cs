using Grpc.Core;
using Method = KvCluster.V1.Method;

namespace KvCluster.Router.Api;

/// <summary>Computes the deadlines of calls.</summary>
internal static class Deadlines
{
    private const long MarginMsMax = 500;

    /// <summary>
    /// The deadline for an answer that combines those of many nodes. It is a little earlier than the caller's, so that the caller still learns which nodes
    /// did not answer.
    /// </summary>
    public static long OfAll(ServerCallContext context, TimeSpan otherwise) =>
        Environment.TickCount64 + WaitMs(Of(context, otherwise) - Environment.TickCount64);

    /// <summary>
    /// The deadline of a call of one key. That of a read is a little earlier than the caller's, so that the caller still learns why it was refused, as it does
    /// from a node. A change has all the time, because its outcome is worth more.
    /// </summary>
    public static long Of(Method method, ServerCallContext context, TimeSpan otherwise) =>
        method.IsRead() && context.Deadline != DateTime.MaxValue ? OfAll(context, otherwise) : Of(context, otherwise);

    /// <summary>How long a scan waits for its next page. No longer than its caller, who is still to learn why there is none.</summary>
    public static TimeSpan PatienceOf(ServerCallContext context, TimeSpan otherwise)
    {
        if (context.Deadline == DateTime.MaxValue)
            return otherwise;
        var patience = TimeSpan.FromMilliseconds(WaitMs(Of(context, otherwise) - Environment.TickCount64));
        return patience < otherwise ? patience : otherwise;
    }

    /// <summary>How long to work on an answer for which the caller waits for so many milliseconds. The rest is for the answer to reach it.</summary>
    public static long WaitMs(long leftMs) => leftMs - Math.Min(leftMs / 10, MarginMsMax);

    /// <summary>The caller's deadline in <see cref="Environment.TickCount64"/>; for a caller without one, <paramref name="otherwise"/> from now.</summary>
    public static long Of(ServerCallContext context, TimeSpan otherwise) => Of(context.Deadline, otherwise);

    /// <summary>The same for a deadline; <see cref="DateTime.MaxValue"/> means none.</summary>
    public static long Of(DateTime deadline, TimeSpan otherwise) => Environment.TickCount64 + (long)(deadline == DateTime.MaxValue
        ? otherwise.TotalMilliseconds
        : Math.Max(0, (deadline - DateTime.UtcNow).TotalMilliseconds));
}
