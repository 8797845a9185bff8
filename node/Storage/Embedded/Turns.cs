namespace KvCluster.Storage;

/// <summary>
/// Turns of a <see cref="KvStore"/> that are taken one at a time, until its disposal ends them. Whoever waits for a turn then, and whoever asks for one later,
/// gets an <see cref="ObjectDisposedException"/>. Any thread.
/// </summary>
internal sealed class Turns
{
    private readonly SemaphoreSlim _free = new(1, 1);
    private volatile bool _hasEnded;

    /// <summary>Waits for a turn, which its holder disposes of.</summary>
    /// <exception cref="ObjectDisposedException">The turns have ended.</exception>
    public async Task<Turn> TakeAsync(CancellationToken cancellationToken)
    {
        await _free.WaitAsync(cancellationToken).ConfigureAwait(false);
        if (!_hasEnded)
            return new Turn(_free);
        // Those who wait go one after the other, and each lets the next one see the end.
        _free.Release();
        throw new ObjectDisposedException(nameof(KvStore), "The store was disposed of. Nothing was changed.");
    }

    /// <summary>Waits for the turn that is taken. None begins afterwards.</summary>
    public async Task EndAsync()
    {
        _hasEnded = true;
        await _free.WaitAsync().ConfigureAwait(false);
        _free.Release();
    }

    /// <summary>A turn, until it is disposed of.</summary>
    public readonly struct Turn(SemaphoreSlim free) : IDisposable
    {
        /// <summary>Lets the next one begin.</summary>
        public void Dispose() => free.Release();
    }
}
