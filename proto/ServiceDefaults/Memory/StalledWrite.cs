// Writes to streams whose caller may not read. Any thread.
namespace KvCluster.ServiceDefaults.Memory;

/// <summary>Waits for a write to a stream, but not for ever: a message that is not taken holds memory.</summary>
internal static class StalledWrite
{
    /// <summary>After so long a caller that does not read is given up if memory is short: more than a pause of a collection, or of a machine that stalls.</summary>
    private static readonly TimeSpan Patience = TimeSpan.FromSeconds(3);

    /// <summary>After so long in any case. A message has 4 MiB, or one reply of up to 16: this is a connection of 300 KB/s.</summary>
    private static readonly TimeSpan PatienceMax = TimeSpan.FromSeconds(60);

    /// <summary>Waits for a write; false: the caller does not read, and the stream is to be broken off.</summary>
    /// <exception cref="Exception">What the write failed with.</exception>
    public static async ValueTask<bool> EndsAsync(Task write, ByteBudget budget)
    {
        for (var waited = TimeSpan.Zero; !write.IsCompleted; waited += Patience)
        {
            if (waited >= PatienceMax || (waited >= Patience && budget.IsShort))
                return false;
            await write.WaitAsync(Patience).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }
        await write.ConfigureAwait(false);
        return true;
    }
}
