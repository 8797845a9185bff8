using Grpc.Core;
using KvCluster.Admin.V1;

namespace KvCluster.Client.Transport;

/// <summary>Reads the states of an operation from one node or router after the other, because the node that executes it changes. Pure but for the stream; any thread.</summary>
internal static class OperationStream
{
    /// <summary>The pause before the next one is asked.</summary>
    public static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(100);

    /// <summary>The next state; null if another stream is to be opened.</summary>
    /// <param name="states">The stream.</param>
    /// <param name="deadlineMs">When its caller gives up, in <see cref="Environment.TickCount64"/>.</param>
    /// <param name="broken">Told why the stream ended early.</param>
    /// <param name="cancellationToken">The caller stopped waiting.</param>
    /// <exception cref="RpcException">The operation is not known, or the deadline has passed.</exception>
    public static async Task<WatchOperationResponse?> NextAsync(IAsyncStreamReader<WatchOperationResponse> states, long deadlineMs, Action<RpcException> broken, CancellationToken cancellationToken)
    {
        try
        {
            return await states.MoveNext(cancellationToken).ConfigureAwait(false) ? states.Current : null;
        }
        catch (RpcException failure) when (StreamEnds.MayGoOn(failure) && Environment.TickCount64 < deadlineMs && !cancellationToken.IsCancellationRequested)
        {
            broken(failure);
            return null;
        }
    }

    /// <summary>Whether no further state follows.</summary>
    public static bool IsLast(WatchOperationResponse state) => state.Operation.State != OperationState.Running;

    /// <summary>The deadline of a stream.</summary>
    public static DateTime ToDeadline(long deadlineMs) => DateTime.UtcNow.AddMilliseconds(Math.Max(0, deadlineMs - Environment.TickCount64));
}
