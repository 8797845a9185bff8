// Writes to streams whose callers may not read. Any thread.
namespace KvCluster.ServiceDefaults.Memory;

/// <summary>Waits for a write to a stream, but for a limited time, because a message that is not read holds memory.</summary>
internal static class StalledWrite
{
    /// <summary>
    /// After this time a caller that does not read is given up if memory is short. It is longer than a pause of the garbage collector or a stall of a
    /// machine.
    /// </summary>
    private static readonly TimeSpan Patience = TimeSpan.FromSeconds(3);

    /// <summary>
    /// After this time it is given up in any case. A message has 4 MiB, or one reply of up to 16 MiB, so this corresponds to a connection of 300 KB/s.
    /// </summary>
    private static readonly TimeSpan PatienceMax = TimeSpan.FromSeconds(60);

    /// <summary>Waits for a write. Returns false if the caller does not read, in which case the stream must be ended.</summary>
    /// <param name="write">The write.</param>
    /// <param name="budget">Tells whether memory is short.</param>
    /// <param name="call">The call's own token.</param>
    /// <param name="clock">Measures the wait; null: the machine's.</param>
    /// <exception cref="OperationCanceledException">
    /// The call has ended. gRPC reports a write that comes after it as a mistake in the program (<see cref="InvalidOperationException"/>), and logs it as one
    /// of the service.
    /// </exception>
    /// <exception cref="Exception">What the write failed with.</exception>
    public static async ValueTask<bool> EndsAsync(Task write, ByteBudget budget, CancellationToken call, TimeProvider? clock = null)
    {
        for (var waited = TimeSpan.Zero; !write.IsCompleted; waited += Patience)
        {
            if (waited >= PatienceMax || (waited >= Patience && budget.IsShort))
                return false;
            await write.WaitAsync(Patience, clock ?? TimeProvider.System).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }
        try
        {
            await write.ConfigureAwait(false);
        }
        catch (InvalidOperationException failure) when (call.IsCancellationRequested)
        {
            throw new OperationCanceledException("The call ended before the write.", failure, call);
        }
        return true;
    }
}
