using System.Runtime.CompilerServices;
using Grpc.Core;
using KvCluster.Admin.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// Reads the states of an operation from one node or router after the other, because the node that executes it changes. Pure but for the streams; any thread.
/// </summary>
internal static class OperationStream
{
    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(100);

    /// <summary>The states until the last one.</summary>
    /// <param name="method">The call that follows an operation.</param>
    /// <param name="request">Names it.</param>
    /// <param name="channels">Connect to the addresses.</param>
    /// <param name="nextAsync">Finds the address to ask next.</param>
    /// <param name="broken">Told why the stream of an address ended early.</param>
    /// <param name="deadlineMs">When its caller gives up, in <see cref="Environment.TickCount64"/>.</param>
    /// <param name="cancellationToken">The caller stopped waiting.</param>
    /// <exception cref="RpcException">The operation is not known, or the deadline has passed.</exception>
    public static async IAsyncEnumerable<TResponse> FollowAsync<TRequest, TResponse>(
        Method<TRequest, TResponse> method,
        TRequest request,
        NodeChannels channels,
        Func<Task<string>> nextAsync,
        Action<string, RpcException> broken,
        long deadlineMs,
        [EnumeratorCancellation] CancellationToken cancellationToken)
        where TRequest : class
        where TResponse : class
    {
        while (true)
        {
            var address = await nextAsync().ConfigureAwait(false);
            using var stream = channels.To(address).AsyncServerStreamingCall(method, null, OperatorInvoker.OptionsOf(deadlineMs, cancellationToken), request);
            var states = stream.ResponseStream;
            while (await NextAsync(states, deadlineMs, failure => broken(address, failure), cancellationToken).ConfigureAwait(false) is { } state)
            {
                yield return state;
                if (state is WatchOperationResponse { Operation.State: not OperationState.Running })
                    yield break;
            }
            await Task.Delay(Pause, cancellationToken).ConfigureAwait(false);
        }
    }

    // The next state; null if another stream is to be opened.
    private static async Task<TResponse?> NextAsync<TResponse>(
        IAsyncStreamReader<TResponse> states, long deadlineMs, Action<RpcException> broken, CancellationToken cancellationToken)
        where TResponse : class
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
}
