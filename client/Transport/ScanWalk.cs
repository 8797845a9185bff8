using System.Runtime.CompilerServices;
using Grpc.Core;
using KvCluster.Serving;
using KvCluster.V1;

namespace KvCluster.Client.Transport;

/// <summary>
/// A scan over all shards of its range, one after the other, each from its leader. A broken stream goes on after the last key received;
/// the scan fails only when nothing came for the time allowed. Used by the client library and the router.
/// </summary>
internal sealed class ScanWalk(CallRouter calls, NodeChannels channels, TimeSpan patience)
{
    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(50);

    private enum Step
    {
        Page,
        Ended,
        Broken,
    }

    /// <summary>The pages in order, <c>next_start</c> taken out.</summary>
    /// <exception cref="RpcException">The scan cannot go on; what was received before is a true part of the range.</exception>
    public async IAsyncEnumerable<ScanPage> PagesAsync(ScanRequest request, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var position = new ScanPosition(request);
        var giveUpMs = Environment.TickCount64 + (long)patience.TotalMilliseconds;
        while (!position.Done)
        {
            var address = await FindLeaderAsync(position, giveUpMs, cancellationToken).ConfigureAwait(false);
            using var stream = new Kv.KvClient(channels.To(address)).Scan(position.Rest, cancellationToken: cancellationToken);
            for (var step = Step.Page; step == Step.Page;)
            {
                step = await NextAsync(stream.ResponseStream, giveUpMs, cancellationToken).ConfigureAwait(false);
                if (step == Step.Page)
                {
                    var page = stream.ResponseStream.Current;
                    position.Advance(page);
                    page.ClearNextStart();
                    yield return page;
                    // After the reader had its time with the page.
                    giveUpMs = Environment.TickCount64 + (long)patience.TotalMilliseconds;
                }
                else if (step == Step.Ended)
                {
                    position.EndStream();
                }
                else
                {
                    await Task.Delay(Pause, cancellationToken).ConfigureAwait(false);
                }
            }
        }
    }

    private async Task<string> FindLeaderAsync(ScanPosition position, long giveUpMs, CancellationToken cancellationToken)
    {
        while (true)
        {
            if (!await calls.WaitForMapAsync(giveUpMs, cancellationToken).ConfigureAwait(false))
                throw CallStatus.Unavailable(calls.MapFailure).ToRpcException();
            if (calls.LeaderAddress(position.FindIn(calls.Table.Map)) is { } address)
                return address;
            if (Environment.TickCount64 >= giveUpMs)
                throw CallStatus.Unavailable("the shard map names no leader").ToRpcException();
            await Task.WhenAny(calls.Table.NextChange(), Task.Delay(Pause, cancellationToken)).ConfigureAwait(false);
            cancellationToken.ThrowIfCancellationRequested();
        }
    }

    private async Task<Step> NextAsync(IAsyncStreamReader<ScanPage> pages, long giveUpMs, CancellationToken cancellationToken)
    {
        try
        {
            return await pages.MoveNext(cancellationToken).ConfigureAwait(false) ? Step.Page : Step.Ended;
        }
        catch (RpcException failure) when (failure.StatusCode == StatusCode.Unavailable && Environment.TickCount64 < giveUpMs)
        {
            if (failure.GetRpcStatus()?.GetDetail<RouteHint>() is { } hint)
                calls.Table.Fold(hint);
            return Step.Broken;
        }
    }
}
