namespace KvCluster.Storage;

/// <summary>
/// The callers of a <see cref="KvStore"/> whose batches found the queue full: first come, first served. Only the first of them tries again. When all of them
/// did, a large batch was overtaken by small ones again and again, one of 15 MiB beside 64 callers for 22 s. Any thread.
/// </summary>
internal sealed class AdmissionLine
{
    private readonly Lock _gate = new();
    private readonly Queue<TaskCompletionSource> _waiting = new();
    private volatile bool _isTaken;

    /// <summary>Whether somebody waits, so that others must not pass.</summary>
    public bool IsTaken => _isTaken;

    /// <summary>
    /// Waits to be the first, who disposes of the place when his batch is in the queue. Does not need the thread pool for callers that block.
    /// </summary>
    public Place Enter()
    {
        lock (_gate)
        {
            var turn = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
            if (_isTaken)
                _waiting.Enqueue(turn);
            else
                turn.SetResult();
            _isTaken = true;
            return new Place(this, turn);
        }
    }

    private void Leave()
    {
        lock (_gate)
        {
            while (_waiting.TryDequeue(out var next))
            {
                // A caller that has given up is passed over.
                if (next.TrySetResult())
                    return;
            }
            _isTaken = false;
        }
    }

    /// <summary>A place in the line, until it is disposed of.</summary>
    public readonly struct Place(AdmissionLine line, TaskCompletionSource turn) : IDisposable
    {
        /// <summary>Completes when it is the first.</summary>
        public Task Turn => turn.Task;

        /// <summary>Leaves the line.</summary>
        public void Dispose()
        {
            if (!turn.TrySetCanceled())
                line.Leave();
        }
    }
}
