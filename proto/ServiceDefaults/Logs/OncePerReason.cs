using System.Collections.Concurrent;

namespace KvCluster.ServiceDefaults.Logs;

/// <summary>
/// Limits the log messages about something that is tried again and again to one for each reason why it fails, until the reason changes. Any thread.
/// </summary>
internal sealed class OncePerReason
{
    private string? _reason;

    /// <summary>Whether the reason differs from the last one, and is to be logged.</summary>
    public bool MaySay(string reason) => Interlocked.Exchange(ref _reason, reason) != reason;

    /// <summary>It has succeeded, so that the same reason is logged again later.</summary>
    public void Forget() => Volatile.Write(ref _reason, null);
}

/// <summary>The same for several things. Its owner bounds their number.</summary>
internal sealed class OncePerReason<TKey>
    where TKey : notnull
{
    private readonly ConcurrentDictionary<TKey, OncePerReason> _reasons = new();

    /// <inheritdoc cref="OncePerReason.MaySay"/>
    public bool MaySay(TKey key, string reason) => _reasons.GetOrAdd(key, static _ => new OncePerReason()).MaySay(reason);

    /// <inheritdoc cref="OncePerReason.Forget"/>
    public void Forget(TKey key) => _reasons.TryRemove(key, out _);
}
