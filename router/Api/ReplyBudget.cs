using KvCluster.ServiceDefaults.Exchanges;

namespace KvCluster.Router.Api;

/// <summary>
/// The room kept for large responses of one exchange that are being fetched. Together with the replies that wait to be written it is bounded. All exchanges
/// together are bounded by <c>CallMemory.Replies</c>. Used under the exchange's lock, except for <see cref="HoldAsync"/> and <see cref="Release"/>, which take
/// it.
/// </summary>
/// <param name="gate">The exchange's lock.</param>
/// <param name="waitingBytes">How many bytes of replies wait to be written.</param>
internal sealed class ReplyBudget(Lock gate, Func<long> waitingBytes)
{
    /// <summary>The bytes of a reply in its message, besides its response; a few more than it has.</summary>
    private const int OverheadBytes = 128;

    private readonly LinkedList<Hold> _holds = new();
    private long _heldBytes;

    /// <summary>Returns the room that a call has kept. Its reply is counted instead.</summary>
    public void GiveBack(ExchangeCall call)
    {
        _heldBytes -= call.HeldBytes;
        call.HeldBytes = 0;
    }

    /// <summary>
    /// Reserves room for the calls that wait for it, while there is any. The rest of the limit is left to small replies that arrive meanwhile.
    /// </summary>
    public void LetHoldsIn()
    {
        while (_holds.First is { } first)
        {
            var held = _heldBytes + waitingBytes();
            if (held > 0 && held + first.Value.Bytes > ExchangeLimits.ReplyBytesMax - ExchangeLimits.WaitingBytesMax)
                return;
            _holds.RemoveFirst();
            first.Value.Call.HeldBytes += first.Value.Bytes;
            _heldBytes += first.Value.Bytes;
            first.Value.SetResult();
        }
    }

    /// <inheritdoc cref="IReplyRoom.HoldAsync"/>
    /// <remarks>Served in the order of the calls, so that small ones do not delay the largest.</remarks>
    public async ValueTask<bool> HoldAsync(ExchangeCall call, int bytes, long deadlineMs, CancellationToken cancellationToken)
    {
        LinkedListNode<Hold> hold;
        lock (gate)
        {
            // A response that has grown needs more room. If the call kept its old room, it would wait for itself.
            GiveBack(call);
            hold = _holds.AddLast(new Hold(call, bytes + OverheadBytes));
            LetHoldsIn();
        }
        try
        {
            var left = Math.Clamp(deadlineMs - Environment.TickCount64, 0, int.MaxValue);
            await hold.Value.Task.WaitAsync(TimeSpan.FromMilliseconds(left), cancellationToken).ConfigureAwait(false);
            return true;
        }
        catch (TimeoutException)
        {
            return false;
        }
        finally
        {
            lock (gate)
            {
                // If it was given room all the same, that room is released when the call ends.
                if (hold.List is not null)
                {
                    _holds.Remove(hold);
                    LetHoldsIn();
                }
            }
        }
    }

    /// <inheritdoc cref="IReplyRoom.Release"/>
    public void Release(ExchangeCall call)
    {
        lock (gate)
        {
            GiveBack(call);
            LetHoldsIn();
        }
    }

    /// <summary>A call that waits for room for a large response.</summary>
    private sealed class Hold(ExchangeCall call, int bytes) : TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously)
    {
        public ExchangeCall Call => call;

        public int Bytes => bytes;
    }
}
