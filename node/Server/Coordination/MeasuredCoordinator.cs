using System.Diagnostics;
using KvCluster.Node.Telemetry;
using KvCluster.Replication.Protocol;

namespace KvCluster.Node.Coordination;

/// <summary>A node's coordinator with its calls measured. The inner coordinator stays its owner's.</summary>
internal sealed class MeasuredCoordinator(ICoordinator inner, NodeMetrics metrics) : ICoordinator
{
    private bool _hasAlarmed;

    public Task<CoordinatorRead> GetAsync(string key, CancellationToken cancellationToken) =>
        MeasureAsync("get", inner.GetAsync(key, cancellationToken));

    public Task<CoordinatorList> ListAsync(string prefix, CancellationToken cancellationToken) =>
        MeasureAsync("list", inner.ListAsync(prefix, cancellationToken));

    public Task<CompareAndSetResult> CompareAndSetAsync(string key, long expectedRevision, string? value, long lease, CancellationToken cancellationToken) =>
        CompareAndSetAsync(key, expectedRevision, value, lease, guardedBy: null, cancellationToken);

    // A lost answer is not an exception here, but it does not count as answered either.
    public Task<CompareAndSetResult> CompareAndSetAsync(string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken) =>
        MeasureAsync(
            "compare_and_set",
            inner.CompareAndSetAsync(key, expectedRevision, value, lease, guardedBy, cancellationToken),
            static result => result.Outcome == SetOutcome.Unknown ? "OUTCOME_UNKNOWN" : null);

    public IAsyncEnumerable<IReadOnlyList<CoordinatorChange>> WatchAsync(string prefix, long fromRevision, CancellationToken cancellationToken) =>
        inner.WatchAsync(prefix, fromRevision, cancellationToken);

    public Task<long> GrantLeaseAsync(TimeSpan timeToLive, CancellationToken cancellationToken) =>
        MeasureAsync("grant_lease", inner.GrantLeaseAsync(timeToLive, cancellationToken));

    public Task<bool> KeepAliveAsync(long lease, CancellationToken cancellationToken) =>
        MeasureAsync("keep_alive", inner.KeepAliveAsync(lease, cancellationToken));

    public Task RevokeAsync(long lease, CancellationToken cancellationToken) => inner.RevokeAsync(lease, cancellationToken);

    public ICoordinator Anew() => inner.Anew();

    public void ContinueAs(ICoordinator anew)
    {
        inner.ContinueAs(anew);
        Interlocked.Exchange(ref _hasAlarmed, false);
    }

    /// <summary>Counts an alarm about the coordinator, once until it is followed again.</summary>
    public void Alarm()
    {
        if (Interlocked.Exchange(ref _hasAlarmed, true) is false)
            metrics.Alarmed();
    }

    public ValueTask DisposeAsync() => ValueTask.CompletedTask;

    private async Task<T> MeasureAsync<T>(string call, Task<T> calling, Func<T, string?>? errorOf = null)
    {
        var began = Stopwatch.GetTimestamp();
        try
        {
            var answer = await calling.ConfigureAwait(false);
            metrics.CoordinatorCalled(call, began, errorOf?.Invoke(answer));
            return answer;
        }
        catch (CoordinatorAlarmException failure)
        {
            // It answers, but its answers are not trusted. Whether a guard that does not hold is an alarm is found out by the caller.
            metrics.CoordinatorCalled(call, began, error: null);
            if (failure is not CoordinatorGuardException)
                Alarm();
            throw;
        }
        catch (Exception failure) when (failure is not OperationCanceledException)
        {
            metrics.CoordinatorCalled(call, began, failure.GetType().Name);
            throw;
        }
    }
}
