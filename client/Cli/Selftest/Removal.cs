using KvCluster.Client;

namespace KvCluster.Cli.Selftest;

/// <summary>
/// Removes what a run has put, also after a failure and after Ctrl-C. Then a call that was cancelled may still be under way, so a prefix counts as removed only
/// when it has no keys afterwards.
/// </summary>
internal sealed class Removal : IDisposable
{
    private static readonly TimeSpan Limit = TimeSpan.FromSeconds(30);

    /// <summary>An interrupted command is ended after two seconds, and what is left must be told before that.</summary>
    private static readonly TimeSpan LimitAfterInterruption = TimeSpan.FromSeconds(1.5);

    private readonly CancellationTokenSource _interrupted = new();
    private readonly CancellationTokenRegistration _registration;

    /// <param name="stop">The interruption, from which on little time is left.</param>
    public Removal(CancellationToken stop) => _registration = stop.Register(() => _interrupted.CancelAfter(LimitAfterInterruption));

    /// <summary>Removes everything. What could not be removed is told on standard error.</summary>
    public async Task RemoveAsync(SelftestRun run)
    {
        using var limit = CancellationTokenSource.CreateLinkedTokenSource(_interrupted.Token);
        limit.CancelAfter(Limit);
        await Task.WhenAll(
            [
                .. run.PrefixesElsewhere.Append(run.Key("")).Select(
                    prefix => TellIfLeftAsync("keys that begin with", prefix, "rm --prefix", () => RemoveKeysAsync(run.Client, prefix, limit.Token))),
                .. run.Sets.Select(set => TellIfLeftAsync("the set", set, "set remove --all", () => SelftestRun.RepeatAsync(
                    () => run.Client.Sets.RemoveAllAsync(set, cancellationToken: limit.Token).AsTask(), limit.Token))),
            ]);
    }

    public void Dispose()
    {
        _registration.Dispose();
        _interrupted.Dispose();
    }

    private static async Task RemoveKeysAsync(KvClient client, byte[] prefix, CancellationToken limit)
    {
        do
            await SelftestRun.RepeatAsync(() => client.DeleteRangeAsync(new KvRange { Prefix = prefix }, cancellationToken: limit).AsTask(), limit);
        while (await SelftestRun.RepeatAsync(() => client.CountAsync(prefix, cancellationToken: limit), limit) > 0);
    }

    private static async Task TellIfLeftAsync(string what, byte[] name, string command, Func<Task> remove)
    {
        try
        {
            await remove();
        }
        catch (Exception failure) when (failure is KvException or OperationCanceledException)
        {
            var why = failure is KvException { Reason: var reason } ? reason : "no answer in time";
            StandardError.Tell($"selftest could not remove {what} {Text.ForPeople(name)} ({why}). If they are still there, kv {command} removes them.");
        }
    }
}
