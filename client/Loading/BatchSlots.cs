using KvCluster.Client.Runtime;

namespace KvCluster.Client.Loading;

/// <summary>
/// The places of the batches of a load that are under way. Waits go on as the runtime says, so that a load in simulated time stays on its thread, where a
/// semaphore's waits would not. Thread-safe.
/// </summary>
/// <param name="runtime">How waits go on.</param>
/// <param name="count">The number of places.</param>
internal sealed class BatchSlots(ClientRuntime runtime, int count)
{
    private readonly Lock _lock = new();
    private int _taken;
    private TaskCompletionSource? _released;

    /// <summary>Takes a place, and waits for one if there is none.</summary>
    public async ValueTask TakeAsync(CancellationToken cancellationToken)
    {
        while (TryTake() is { } released)
            await released.WaitAsync(cancellationToken).ConfigureAwait(false);
    }

    /// <summary>Gives a place back.</summary>
    public void Release()
    {
        TaskCompletionSource? released;
        lock (_lock)
        {
            _taken--;
            (released, _released) = (_released, null);
        }
        released?.TrySetResult();
    }

    /// <summary>Waits until no place is taken. Nobody takes one meanwhile.</summary>
    public async Task WaitForAllAsync(CancellationToken cancellationToken)
    {
        while (AllOrNext() is { } released)
            await released.WaitAsync(cancellationToken).ConfigureAwait(false);
    }

    // Null if a place was taken; otherwise completes when one is given back.
    private Task? TryTake()
    {
        lock (_lock)
        {
            if (_taken == count)
                return (_released ??= runtime.NewSignal()).Task;
            _taken++;
            return null;
        }
    }

    private Task? AllOrNext()
    {
        lock (_lock)
            return _taken == 0 ? null : (_released ??= runtime.NewSignal()).Task;
    }
}
