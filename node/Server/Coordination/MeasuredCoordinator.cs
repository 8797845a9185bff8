using System.Diagnostics;
using KvCluster.Node.Telemetry;
using KvCluster.Replication.Protocol;

namespace KvCluster.Node.Coordination;

/// <summary>A node's coordinator with its calls measured.</summary>
internal sealed class MeasuredCoordinator(ICoordinator inner, NodeMetrics metrics) : PassingCoordinator(inner)
{
    private bool _hasAlarmed;

    public override Task<CoordinatorRead> GetAsync(string key, CancellationToken cancellationToken) =>
        MeasureAsync("get", Inner.GetAsync(key, cancellationToken));

    public override Task<CoordinatorList> ListAsync(string prefix, CancellationToken cancellationToken) =>
        MeasureAsync("list", Inner.ListAsync(prefix, cancellationToken));

    // A lost answer is not an exception here, but it does not count as answered either.
    public override Task<CompareAndSetResult> CompareAndSetAsync(
        string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken) =>
            MeasureAsync(
                "compare_and_set",
                Inner.CompareAndSetAsync(key, expectedRevision, value, lease, guardedBy, cancellationToken),
                static result => result.Outcome == SetOutcome.Unknown ? "OUTCOME_UNKNOWN" : null);

    public override Task<long> GrantLeaseAsync(TimeSpan timeToLive, CancellationToken cancellationToken) =>
        MeasureAsync("grant_lease", Inner.GrantLeaseAsync(timeToLive, cancellationToken));

    public override Task<bool> KeepAliveAsync(long lease, CancellationToken cancellationToken) =>
        MeasureAsync("keep_alive", Inner.KeepAliveAsync(lease, cancellationToken));

    /// <summary>Counts an alarm about the coordinator, once until it is followed again.</summary>
    public void Alarm()
    {
        if (Interlocked.Exchange(ref _hasAlarmed, true) is false)
            metrics.Alarmed();
    }

    /// <summary>The coordinator is followed, so that the next alarm counts again.</summary>
    public void Followed() => Interlocked.Exchange(ref _hasAlarmed, false);

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
            // The coordinator answers, but its answers are not trusted. The caller finds out whether a guard that does not hold is an alarm.
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
