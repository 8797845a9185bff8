// Room for the messages of streams whose messages may be as large as a record of the journal. Any thread.
namespace KvCluster.ServiceDefaults.Memory;

/// <summary>
/// Takes the bytes of a message from a budget before the message is made. A message that is large compared with the budget may never find it as empty as it
/// needs, because small ones come and go all the time. So one such message at a time may exceed the budget.
/// </summary>
internal sealed class MessageRoom(ByteBudget budget)
{
    /// <summary>A message of more than this part of the budget counts as large.</summary>
    private const int LargePart = 4;

    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(50);

    private int _isExceeded;

    /// <summary>The budget.</summary>
    public ByteBudget Budget => budget;

    /// <summary>Takes room if there is any.</summary>
    public bool TryTake(long bytes, out Held held)
    {
        held = new Held(this, bytes, Exceeds: false);
        if (budget.TryTake(bytes, isSmall: bytes <= ByteBudget.SmallBytes))
            return true;
        if (bytes <= budget.LargeBytesMax / LargePart || Interlocked.CompareExchange(ref _isExceeded, 1, 0) != 0)
        {
            held = default;
            return false;
        }
        budget.Take(bytes);
        held = held with { Exceeds = true };
        return true;
    }

    /// <summary>Waits for room. Whoever waits holds nothing.</summary>
    /// <exception cref="OperationCanceledException">The caller is gone.</exception>
    public async ValueTask<Held> TakeAsync(long bytes, TimeProvider clock, CancellationToken cancellationToken)
    {
        Held held;
        while (!TryTake(bytes, out held))
            await Task.Delay(Pause, clock, cancellationToken).ConfigureAwait(false);
        return held;
    }

    /// <summary>Room that was taken; the default: none was.</summary>
    /// <param name="Room">Where it was taken.</param>
    /// <param name="Bytes">How much.</param>
    /// <param name="Exceeds">It is the message that may exceed the budget.</param>
    internal readonly record struct Held(MessageRoom? Room, long Bytes, bool Exceeds)
    {
        /// <summary>Gives it back, once.</summary>
        public void GiveBack()
        {
            if (Room is null)
                return;
            Room.Budget.GiveBack(Bytes);
            if (Exceeds)
                Volatile.Write(ref Room._isExceeded, 0);
        }

        /// <summary>
        /// Gives it back, once, when the write of its message has ended. Until then the message is held, although nobody may wait for it any more.
        /// </summary>
        public void GiveBackAfter(Task write)
        {
            if (Room is null || write.IsCompleted)
            {
                GiveBack();
                return;
            }
            write.ContinueWith(
                static (_, held) => ((Held)held!).GiveBack(),
                this, CancellationToken.None, TaskContinuationOptions.ExecuteSynchronously, TaskScheduler.Default);
        }
    }
}
