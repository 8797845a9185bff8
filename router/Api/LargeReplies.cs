// The outstanding reads of the router with large responses: a bounded number of bytes, with callers taking turns. Once a node has begun to answer, the
// response takes its connection and the router's memory until all of it has arrived, even if nobody waits for it any more. So a read keeps its bytes until
// then. Called by Forwarding, on any thread.
using KvCluster.Client.Transport;

namespace KvCluster.Router.Api;

/// <summary>Starts reads with large responses, as many as the router can take at a time.</summary>
/// <param name="bytesMax">The total size of their responses. A single response may always be larger.</param>
/// <param name="minMs">See <see cref="MinMs"/>.</param>
/// <param name="maxMs">See <see cref="MaxMs"/>.</param>
internal sealed class LargeReplies(long bytesMax = LargeReplies.BytesMax, int minMs = LargeReplies.MinMs, int maxMs = LargeReplies.MaxMs)
{
    /// <summary>Twice the largest answer, four times the largest value: enough to keep a fast network busy.</summary>
    public const long BytesMax = 32L << 20;

    /// <summary>
    /// A read continues for this long without its caller, so that its response is not still arriving when its bytes are released. A healthy replica
    /// begins to answer at once. One that is not healthy must not keep the bytes for longer, because callers that are gone may have set
    /// deadlines of days.
    /// </summary>
    public const int MinMs = 2_000;

    /// <summary>
    /// A read keeps its bytes for at most this long. All of them arrive in this time over a connection of 10 Mbit/s, so the shard of a read that takes longer
    /// is stuck.
    /// </summary>
    public const int MaxMs = 30_000;

    private readonly Lock _gate = new();
    private readonly Dictionary<uint, LinkedList<Waiter>> _waiting = [];

    // The callers with a list, in the order of their turns.
    private readonly LinkedList<uint> _turns = new();
    private long _taken;
    private int _waiters;

    /// <summary>The number of reads that wait for their turn.</summary>
    public int Waiting => Volatile.Read(ref _waiters);

    /// <summary>Makes a read when it is its caller's turn. Returns null if the deadline passed before that or before the answer.</summary>
    /// <param name="caller">Identified by connection.</param>
    /// <param name="bytes">The size of the response, as far as known.</param>
    /// <param name="deadlineMs"><see cref="Environment.TickCount64"/> at which to give up.</param>
    /// <param name="read">Makes the read, with a deadline. Called once, and cancelled when its caller has been gone for a while.</param>
    /// <param name="cancellationToken">The caller has stopped waiting.</param>
    public async Task<RoutedReply?> ReadAsync(
        uint caller, int bytes, long deadlineMs, Func<long, CancellationToken, ValueTask<RoutedReply>> read, CancellationToken cancellationToken)
    {
        if (!await TryEnterAsync(caller, bytes, deadlineMs, cancellationToken).ConfigureAwait(false))
            return null;
        // The read may use this source for longer than its caller waits, so the source is not disposed.
        var abandoned = new CancellationTokenSource();
        var nowMs = Environment.TickCount64;
        var reading = ReadToEndAsync(bytes, Math.Clamp(deadlineMs, nowMs + minMs, nowMs + maxMs), read, abandoned.Token);
        try
        {
            return await reading.WaitAsync(Left(deadlineMs), cancellationToken).ConfigureAwait(false);
        }
        catch (TimeoutException)
        {
            // The read may have ended between the deadline and here.
            if (reading.IsCompletedSuccessfully)
                return await reading.ConfigureAwait(false);
            Abandon(reading, abandoned);
            return null;
        }
        catch (OperationCanceledException)
        {
            Abandon(reading, abandoned);
            throw;
        }
    }

    private void Abandon(Task<RoutedReply> reading, CancellationTokenSource abandoned)
    {
        abandoned.CancelAfter(minMs);
        // Nobody waits for its result any more; this observes its exception.
        _ = reading.ContinueWith(static ended => _ = ended.Exception, CancellationToken.None, TaskContinuationOptions.OnlyOnFaulted, TaskScheduler.Default);
    }

    private static TimeSpan Left(long deadlineMs) => TimeSpan.FromMilliseconds(Math.Clamp(deadlineMs - Environment.TickCount64, 0, int.MaxValue));

    private async Task<RoutedReply> ReadToEndAsync(
        int bytes, long deadlineMs, Func<long, CancellationToken, ValueTask<RoutedReply>> read, CancellationToken abandoned)
    {
        try
        {
            return await read(deadlineMs, abandoned).ConfigureAwait(false);
        }
        finally
        {
            Leave(bytes);
        }
    }

    private async Task<bool> TryEnterAsync(uint caller, int bytes, long deadlineMs, CancellationToken cancellationToken)
    {
        LinkedListNode<Waiter> waiter;
        lock (_gate)
        {
            if (_turns.Count == 0 && TryTakeLocked(bytes))
                return true;
            if (!_waiting.TryGetValue(caller, out var waiting))
            {
                _waiting[caller] = waiting = new LinkedList<Waiter>();
                _turns.AddLast(caller);
            }
            waiter = waiting.AddLast(new Waiter(bytes));
            _waiters++;
        }
        try
        {
            await waiter.Value.Task.WaitAsync(Left(deadlineMs), cancellationToken).ConfigureAwait(false);
            return true;
        }
        catch (Exception failure) when (failure is TimeoutException or OperationCanceledException)
        {
            if (!TryWithdraw(caller, waiter))
                Leave(bytes);
            if (failure is TimeoutException)
                return false;
            throw;
        }
    }

    private bool TryTakeLocked(int bytes)
    {
        Invariant.CheckHeld(_gate);
        if (_taken > 0 && _taken + bytes > bytesMax)
            return false;
        _taken += bytes;
        return true;
    }

    private void Leave(int bytes)
    {
        lock (_gate)
        {
            _taken -= bytes;
            LetInLocked();
        }
    }

    private void LetInLocked()
    {
        Invariant.CheckHeld(_gate);
        while (_turns.First is { } turn && _waiting[turn.Value].First is { } first && TryTakeLocked(first.Value.Bytes))
        {
            _turns.RemoveFirst();
            _waiting[turn.Value].RemoveFirst();
            _waiters--;
            if (_waiting[turn.Value].Count > 0)
                _turns.AddLast(turn);
            else
                _waiting.Remove(turn.Value);
            first.Value.SetResult();
        }
    }

    // Returns false if it was let in before.
    private bool TryWithdraw(uint caller, LinkedListNode<Waiter> waiter)
    {
        lock (_gate)
        {
            if (waiter.List is not { } waiting)
                return false;
            waiting.Remove(waiter);
            _waiters--;
            if (waiting.Count == 0)
            {
                _waiting.Remove(caller);
                _turns.Remove(caller);
            }
            // The reply that has left the queue may have been a large one, behind which smaller ones waited.
            LetInLocked();
            return true;
        }
    }

    /// <summary>A read that waits for its turn.</summary>
    private sealed class Waiter(int bytes) : TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously)
    {
        public int Bytes => bytes;
    }
}
