using System.Diagnostics;
using Grpc.Core;

namespace KvCluster.Shared;

/// <summary>Its wait for answers of gRPC, which not every project of tests knows.</summary>
internal static partial class Eventually
{
    /// <summary>Repeats a call until it is answered.</summary>
    /// <param name="call">Makes the call.</param>
    /// <param name="isPassing">Whether a refusal is temporary, so that the call is repeated. Any other is thrown.</param>
    public static async Task<T> AnsweredAsync<T>(Func<Task<T>> call, Func<RpcException, bool> isPassing)
    {
        for (var started = Stopwatch.GetTimestamp(); ;)
        {
            try
            {
                return await call();
            }
            catch (RpcException refused) when (isPassing(refused) && Stopwatch.GetElapsedTime(started) < LongestWait)
            {
                await Task.Delay(LongestPause);
            }
        }
    }
}
