using System.Runtime.CompilerServices;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client.Routing;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// A scan over all shards of its range, one after the other, each at its leader, or at any replica if the mode allows that. After a broken stream, one that
/// was ended because its reader paused, or one whose snapshot was held too long, it continues after the last key received: in the same snapshot if the same
/// node keeps it, otherwise in a newer one, unless the caller wants one snapshot. The scan fails only if nothing was received for the time allowed, in which
/// neither the reader paused nor the process stood still. Used by the client library and the router.
/// </summary>
internal sealed class ScanWalk(CallRouter calls, IScanSource source, TimeSpan patience)
{
    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(50);
    private static readonly TimeSpan FirstPageWaitMin = TimeSpan.FromMilliseconds(500);

    /// <summary>With less time left no other replica is asked.</summary>
    private static readonly TimeSpan LeftMin = TimeSpan.FromMilliseconds(10);

    // A time of the clock that counts only while the process runs.
    private long _giveUpMs;

    // The wait requested by the node that broke the last stream.
    private TimeSpan _asked;

    // Why the last stream of a scan of one snapshot broke.
    private RpcException? _broken;

    // Why the last stream that failed did so, if no page came since; null if nodes were only silent.
    private RpcException? _failure;

    private enum Step
    {
        Page,
        Ended,
        Broken,
        TooOld,
    }

    private bool IsGivenUp => calls.AwakeMs >= _giveUpMs;

    private TimeSpan Left => TimeSpan.FromMilliseconds(Math.Max(0, _giveUpMs - calls.AwakeMs));

    /// <summary>The pages in order, without <c>next_start</c> and <c>snapshot</c>.</summary>
    /// <exception cref="RpcException">The scan cannot continue. What was received before is correct, as a part of the range.</exception>
    public async IAsyncEnumerable<StreamMessage<ScanPage>> PagesAsync(ScanRequest request, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var position = new ScanPosition(request);
        AllowTime();
        var atAnyReplica = request.Read?.Mode.IsForLeader() == false;
        for (var attempt = 0; !position.Done;)
        {
            var address = await FindAddressAsync(position, atAnyReplica, attempt, cancellationToken).ConfigureAwait(false);
            if (request.OneSnapshot && _broken is { } broken && !position.IsKeptAt(address))
                throw StreamEnds.IsUnread(broken) ? CallStatus.SnapshotLost(broken.Status.Detail).ToRpcException() : broken;
            using var stream = source.Scan(address, position.RestAt(address), cancellationToken);
            // A replica that does not catch up is replaced with another one, as long as it has sent nothing. Nothing is waited for beyond the time allowed.
            var hasBegun = false;
            for (var step = Step.Page; step == Step.Page;)
            {
                var wait = atAnyReplica && !hasBegun && FirstPageWait() < Left ? FirstPageWait() : Left;
                var isOneSnapshot = request.OneSnapshot && position.HasBegunShard;
                step = await NextAsync(stream.ResponseStream, address, wait, isOneSnapshot, cancellationToken).ConfigureAwait(false);
                if (step == Step.Page)
                {
                    hasBegun = true;
                    attempt = 0;
                    (_broken, _failure) = (null, null);
                    var page = stream.ResponseStream.Current;
                    position.Advance(page, address);
                    if (page.Head.HasNextStart || !page.Head.Snapshot.IsEmpty)
                    {
                        page.Head.ClearNextStart();
                        page.Head.Snapshot = ByteString.Empty;
                        page.WithHead(page.Head);
                    }
                    yield return page;
                    // Counted from when the reader has taken the page.
                    AllowTime();
                }
                else if (step == Step.Ended)
                {
                    position.EndStream();
                }
                else
                {
                    if (step == Step.TooOld)
                        position.ForgetSnapshot();
                    if (hasBegun && step == Step.TooOld)
                        break;
                    attempt++;
                    await calls.Runtime.DelayAsync(_asked > Pause ? _asked : Pause, cancellationToken).ConfigureAwait(false);
                    _asked = TimeSpan.Zero;
                }
            }
        }
    }

    private void AllowTime() => _giveUpMs = calls.AwakeMs + (long)patience.TotalMilliseconds;

    private async Task<string> FindAddressAsync(ScanPosition position, bool atAnyReplica, int attempt, CancellationToken cancellationToken)
    {
        // It was given up in the pause after the last attempt.
        if (IsGivenUp)
            throw GivenUp();
        while (true)
        {
            if (!await calls.WaitForMapAsync(calls.Runtime.NowMs + (long)Left.TotalMilliseconds, cancellationToken).ConfigureAwait(false))
                throw calls.MapError.ToRpcException();
            var destination = calls.Destinations.ForStream(position.FindIn(calls.Table.Map), attempt, atAnyReplica);
            if (destination.Address is { } address)
                return address;
            if (IsGivenUp)
                throw CallStatus.Unavailable(destination.Failure!).ToRpcException();
            await Task.WhenAny(calls.Table.NextChange(), calls.Runtime.DelayAsync(Pause, cancellationToken)).ConfigureAwait(false);
            cancellationToken.ThrowIfCancellationRequested();
        }
    }

    // What a node has answered says more than that the time is over.
    private RpcException GivenUp() => _failure ?? CallStatus.DeadlinePassed("no replica could answer the scan in time").ToRpcException();

    private TimeSpan FirstPageWait() => patience / 3 > FirstPageWaitMin ? patience / 3 : FirstPageWaitMin;

    private async Task<Step> NextAsync(
        IAsyncStreamReader<StreamMessage<ScanPage>> pages, string address, TimeSpan wait, bool isOneSnapshot, CancellationToken cancellationToken)
    {
        try
        {
            return await pages.MoveNext(cancellationToken).WaitAsync(wait, calls.Runtime.Time, cancellationToken).ConfigureAwait(false)
                ? Step.Page
                : Step.Ended;
        }
        catch (TimeoutException)
        {
            return Left > LeftMin ? Step.Broken : throw GivenUp();
        }
        catch (RpcException failure) when (!isOneSnapshot && WasReadSlowly(failure) && !cancellationToken.IsCancellationRequested)
        {
            // No node is at fault.
            _failure = failure;
            return Step.TooOld;
        }
        catch (RpcException failure) when (StreamEnds.MayGoOn(failure) && !IsGivenUp && !cancellationToken.IsCancellationRequested)
        {
            (_broken, _failure) = (isOneSnapshot ? failure : null, failure);
            RouteHints.Fold(calls.Table, failure);
            var asked = CallStatus.RetryDelayOf(failure.GetRpcStatus());
            // At most as long as the scan may still wait.
            _asked = asked < Left ? asked : Left;
            if (OperatorOutcomes.WasNotSent(failure))
                calls.Destinations.Pause(address, $"{address}: {failure.Status.Detail}");
            return Step.Broken;
        }
    }

    // A stream that ends at once and repeatedly was not read slowly, whatever reason the node gives.
    private bool WasReadSlowly(RpcException failure) =>
        StreamEnds.ReasonOf(failure) == CallStatus.SnapshotTooOld || (StreamEnds.IsUnread(failure) && !IsGivenUp);
}
