namespace KvCluster.AdminConsole;

/// <summary>Something about the cluster that is read at a limited rate however many pages are open. Any thread.</summary>
/// <param name="read">Reads it. One at a time.</param>
/// <param name="ageMax">For how long an answer is used.</param>
internal sealed class SharedReading<T>(Func<Task<T>> read, TimeSpan ageMax)
{
    private readonly Lock _gate = new();
    private Task<T>? _last;
    private long _lastBegan;

    /// <summary>What was read within the allowed age.</summary>
    /// <param name="cancellationToken">Stops waiting; others that wait for the same reading are unaffected.</param>
    /// <exception cref="Client.KvException">No node answers, so the shard map is not known.</exception>
    public Task<T> ReadAsync(CancellationToken cancellationToken)
    {
        lock (_gate)
        {
            if (_last is null || (_last.IsCompleted && (_last.IsFaulted || TimeProvider.System.GetElapsedTime(_lastBegan) > ageMax)))
            {
                _lastBegan = TimeProvider.System.GetTimestamp();
                _last = read();
            }
            return _last.WaitAsync(cancellationToken);
        }
    }
}
