namespace KvCluster.Extensions.Caching;

/// <summary>
/// The one attempt to find or make an entry, which all callers of its key share who come while it is under way. It is given up when all of them have. Any
/// thread.
/// </summary>
internal sealed class Flight<T>
{
    private readonly Lock _gate = new();
    private readonly TaskCompletionSource<Made<T>> _result = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly CancellationTokenSource _abandoned = new();
    private int _callers;
    private bool _hasBegun;
    private bool _isAbandoned;

    /// <summary>Cancelled when all callers have stopped waiting.</summary>
    public CancellationToken Abandoned => _abandoned.Token;

    /// <summary>Joins it. Whoever does then waits for the result.</summary>
    /// <param name="isFirst">Whether the caller has to make the attempt.</param>
    /// <returns>False if it was given up.</returns>
    public bool TryJoin(out bool isFirst)
    {
        lock (_gate)
        {
            isFirst = !_hasBegun;
            if (_isAbandoned)
                return false;
            _hasBegun = true;
            _callers++;
            return true;
        }
    }

    /// <summary>Waits for the result.</summary>
    /// <exception cref="OperationCanceledException">The caller stopped waiting.</exception>
    public async Task<Made<T>> ResultAsync(CancellationToken cancellationToken)
    {
        try
        {
            return await _result.Task.WaitAsync(cancellationToken).ConfigureAwait(false);
        }
        finally
        {
            Leave();
        }
    }

    public void Succeed(Made<T> made) => _result.TrySetResult(made);

    public void Fail(Exception failure)
    {
        _result.TrySetException(failure);
        // Seen, also if nobody waits any more.
        _ = _result.Task.Exception;
    }

    private void Leave()
    {
        lock (_gate)
        {
            if (--_callers > 0 || _result.Task.IsCompleted)
                return;
            _isAbandoned = true;
        }
        _abandoned.Cancel();
    }
}

/// <summary>What was found or made.</summary>
/// <param name="Value">The value, which its first caller gets.</param>
/// <param name="Entry">Of which others get values of their own; null if it could not be written as one.</param>
internal readonly record struct Made<T>(T Value, HybridEntry? Entry);
