using KvCluster.Node.Shards;

namespace KvCluster.Node.Coordination;

/// <summary>Changes that go on until their outcome is certain.</summary>
internal static class CoordinatorChanges
{
    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(200);

    /// <summary>
    /// Repeats one compare-and-set until it is certainly won or lost. After an attempt without an answer, finding the very value counts
    /// as won: so the value must name its writer, or it must not matter who wrote it.
    /// </summary>
    public static async Task<CompareAndSetResult> SetUntilSettledAsync(
        this ICoordinator coordinator, string key, long expectedRevision, string value, long lease, CancellationToken cancellationToken)
    {
        var isInDoubt = false;
        while (true)
        {
            var result = await coordinator.CompareAndSetAsync(key, expectedRevision, value, lease, cancellationToken).ConfigureAwait(false);
            if (result.Outcome == CompareAndSetOutcome.Won)
                return result;
            if (result.Outcome == CompareAndSetOutcome.Lost)
                return isInDoubt ? await CompareValueAsync(coordinator, key, value, result, cancellationToken).ConfigureAwait(false) : result;
            isInDoubt = true;
            await Task.Delay(Pause, cancellationToken).ConfigureAwait(false);
        }
    }

    /// <summary>Reads until the coordinator answers.</summary>
    public static async Task<CoordinatorRead> GetUntilAnsweredAsync(this ICoordinator coordinator, string key, CancellationToken cancellationToken)
    {
        while (true)
        {
            try
            {
                return await coordinator.GetAsync(key, cancellationToken).ConfigureAwait(false);
            }
            catch (CoordinatorUnavailableException)
            {
                // The caller waits for an answer or its cancellation; EtcdCoordinator logs that none comes.
                await Task.Delay(Pause, cancellationToken).ConfigureAwait(false);
            }
        }
    }

    private static async Task<CompareAndSetResult> CompareValueAsync(
        ICoordinator coordinator, string key, string value, CompareAndSetResult lost, CancellationToken cancellationToken)
    {
        var read = await coordinator.GetUntilAnsweredAsync(key, cancellationToken).ConfigureAwait(false);
        return read.Value == value ? new CompareAndSetResult(CompareAndSetOutcome.Won, read.ModRevision) : lost;
    }
}
