using System.Diagnostics;
using KvCluster.Client;

namespace KvCluster.Cli.Selftest;

/// <summary>
/// A watch of a check. It goes on after the last message when no replica served it for as long as the library waits, so that only what it tells is judged.
/// Events are told on one thread at a time. Disposing ends it.
/// </summary>
internal sealed class FollowedWatch : IAsyncDisposable
{
    private readonly CancellationTokenSource _ended;
    private readonly TaskCompletionSource _begun = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly Task _following;

    public FollowedWatch(KvClient client, KvWatch watch, Action<KvEvent> told, CancellationToken stop)
    {
        _ended = CancellationTokenSource.CreateLinkedTokenSource(stop);
        _following = FollowAsync(client, watch, told, _ended.Token);
    }

    /// <summary>It has failed: it goes on until it is ended.</summary>
    public bool HasFailed => _following.IsCompleted;

    /// <summary>Waits until every later change will be told.</summary>
    /// <exception cref="KvException">It could not begin.</exception>
    public async Task BegunAsync() => await await Task.WhenAny(_begun.Task, _following);

    /// <summary>Ends it. Nothing is told afterwards.</summary>
    /// <exception cref="KvException">It had failed before.</exception>
    public async Task EndAsync()
    {
        var hadFailed = HasFailed;
        await _ended.CancelAsync();
        await _following.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        if (hadFailed)
            await _following;
    }

    public async ValueTask DisposeAsync()
    {
        await _ended.CancelAsync();
        await _following.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        _ended.Dispose();
    }

    private async Task FollowAsync(KvClient client, KvWatch watch, Action<KvEvent> told, CancellationToken ended)
    {
        string? token = null;
        for (var heard = Stopwatch.GetTimestamp(); ;)
        {
            try
            {
                await foreach (var message in client.WatchAsync(watch with { After = token }, ended))
                {
                    heard = Stopwatch.GetTimestamp();
                    foreach (var change in message.Events)
                        told(change);
                    token = message.Token ?? token;
                    if (token is not null)
                        _begun.TrySetResult();
                }
                throw new SelftestFailure("the watch was expected to go on and has ended");
            }
            catch (KvUnavailableException) when (Stopwatch.GetElapsedTime(heard) < SelftestRun.Patience)
            {
                await Task.Delay(SelftestRun.RetryDelay, ended);
            }
        }
    }
}
