using KvCluster.Replication.Protocol;

namespace KvCluster.Node.Coordination;

/// <summary>Changes under the coordinator's own guard, and those that are repeated until their outcome is certain.</summary>
internal static class CoordinatorChanges
{
    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(200);

    private static readonly TimeSpan RevokeTimeMax = TimeSpan.FromSeconds(1);

    /// <summary>One attempt under <see cref="ICoordinator.Guard"/>.</summary>
    /// <inheritdoc cref="ICoordinator.CompareAndSetAsync"/>
    public static Task<CompareAndSetResult> CompareAndSetAsync(
        this ICoordinator coordinator, string key, long expectedRevision, string? value, long lease, CancellationToken cancellationToken) =>
        coordinator.CompareAndSetAsync(key, expectedRevision, value, lease, coordinator.Guard, cancellationToken);

    /// <summary>
    /// Repeats one compare-and-set until it is certainly won or lost. After an attempt without an answer, finding exactly the given value counts
    /// as won. So the value must identify its writer, or it must not matter who wrote it.
    /// </summary>
    public static Task<CompareAndSetResult> SetUntilSettledAsync(
        this ICoordinator coordinator, string key, long expectedRevision, string value, long lease, CancellationToken cancellationToken) =>
        coordinator.SetUntilSettledAsync(key, expectedRevision, value, lease, coordinator.Guard, cancellationToken);

    /// <summary>The same for an operator, who is told what was changed.</summary>
    /// <returns>Whether the key has the value, and otherwise, if asking again at once does not help, why nothing was changed.</returns>
    /// <exception cref="ChangeUnknownException">The coordinator failed during the change.</exception>
    public static async Task<(bool IsSet, string? Refusal)> SetForOperatorAsync(
        this ICoordinator coordinator, string key, long expectedRevision, string value, CancellationToken cancellationToken)
    {
        try
        {
            return (
                (await coordinator.SetUntilSettledAsync(key, expectedRevision, value, 0, cancellationToken).ConfigureAwait(false)).Outcome == SetOutcome.Won,
                null);
        }
        catch (CoordinatorGuardException)
        {
            return (false, CoordinatorGuard.WhyNotChanged);
        }
        catch (Exception failure) when (failure is CoordinatorUnavailableException or CoordinatorAlarmException)
        {
            throw new ChangeUnknownException(failure.Message.TrimEnd('.'));
        }
    }

    /// <inheritdoc cref="SetUntilSettledAsync(ICoordinator, string, long, string, long, CancellationToken)"/>
    /// <param name="guard">The guard of every attempt; null: none.</param>
    /// <exception cref="CoordinatorGuardException">The guard does not hold. No attempt changed anything.</exception>
    /// <exception cref="CoordinatorUnavailableException">The coordinator refused an attempt, or the guard did not hold after one without an answer.</exception>
    public static async Task<CompareAndSetResult> SetUntilSettledAsync(
        this ICoordinator coordinator,
        string key, long expectedRevision, string value, long lease, CoordinatorGuard? guard, CancellationToken cancellationToken)
    {
        var attempts = default(SetAttempts);
        while (true)
        {
            CompareAndSetResult result;
            try
            {
                result = await coordinator.CompareAndSetAsync(key, expectedRevision, value, lease, guard, cancellationToken).ConfigureAwait(false);
            }
            catch (CoordinatorGuardException broken) when (attempts.IsInDoubt)
            {
                // This attempt changed nothing, but an earlier attempt may have changed the record.
                throw new CoordinatorUnavailableException("the coordinator did not answer, and then its records were not those that this node goes by", broken);
            }
            switch (attempts.Next(result.Outcome))
            {
                case SetStep.Repeat:
                    await Task.Delay(Pause, cancellationToken).ConfigureAwait(false);
                    break;
                case SetStep.Read:
                    var read = await coordinator.GetUntilAnsweredAsync(key, cancellationToken).ConfigureAwait(false);
                    return read.Value == value ? new CompareAndSetResult(SetOutcome.Won, read.ModRevision) : result;
                default:
                    return result;
            }
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
                // The caller waits for an answer or its cancellation. EtcdCoordinator logs the failure.
                await Task.Delay(Pause, cancellationToken).ConfigureAwait(false);
            }
        }
    }

    /// <summary>Ends a lease if the coordinator answers soon. Used when stopping; otherwise the lease ends by itself.</summary>
    /// <param name="coordinator">The coordinator that granted it.</param>
    /// <param name="lease">The lease; 0: none.</param>
    /// <returns>Why it is still granted; null if it is not.</returns>
    public static async Task<string?> RevokeSoonAsync(this ICoordinator coordinator, long lease)
    {
        if (lease == 0)
            return null;
        using var limit = new CancellationTokenSource(RevokeTimeMax);
        try
        {
            await coordinator.RevokeAsync(lease, limit.Token).ConfigureAwait(false);
            return null;
        }
        catch (Exception failure) when (failure is CoordinatorUnavailableException or OperationCanceledException)
        {
            return failure.Message;
        }
    }
}
