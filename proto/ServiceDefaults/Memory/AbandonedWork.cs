// What goes on after its caller has gone: a change that is under way to other nodes, a read that waits for the disk. The call itself ends at once, because
// Kestrel counts the streams of a connection whose handlers have not ended, and refuses everybody's calls on it when a caller with short deadlines leaves
// many of them behind. Any thread.
namespace KvCluster.ServiceDefaults.Memory;

/// <summary>
/// Tells calls when to end, and counts the work that outlives them. Whoever owns its buffers and places keeps them until the work has ended. Each piece of
/// work takes something more of the budget of requests, because it has no stream any more that is counted; without room its call keeps the stream until the
/// work has ended.
/// </summary>
internal sealed class AbandonedWork(ByteBudget requests)
{
    /// <summary>As many pieces as a process may have open calls (<see cref="CallMemory.OpenCallsPerMebibyte"/>) fit into the part of the budget.</summary>
    private const int CallBytes = 4 << 10;

    private int _count;

    /// <summary>Pieces of work that go on without a caller.</summary>
    public int Count => Volatile.Read(ref _count);

    /// <summary>Waits until the work has ended or its caller has gone.</summary>
    /// <returns>False if the work goes on without its caller. It must not use anything that belongs to the call's stream then.</returns>
    public async ValueTask<bool> EndsFirstAsync(Task work, CancellationToken caller)
    {
        await work.WaitAsync(caller).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        if (work.IsCompleted)
            return true;
        if (!requests.TryTake(CallBytes, isSmall: true))
        {
            await work.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
            return true;
        }
        Interlocked.Increment(ref _count);
        _ = CountAsync(work);
        return false;
    }

    private async Task CountAsync(Task work)
    {
        await work.ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        requests.GiveBack(CallBytes);
        Interlocked.Decrement(ref _count);
    }
}
