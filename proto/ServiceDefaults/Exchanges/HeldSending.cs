namespace KvCluster.ServiceDefaults.Exchanges;

/// <summary>
/// Holds the beginning of sending while one thread answers many calls. The first reply on a stream would have another thread send it by itself at once, and the
/// others in further messages. Whoever answers only one call at a time does not use it.
/// </summary>
internal static class HeldSending
{
    [ThreadStatic]
    private static List<IThreadPoolWorkItem>? _held;

    [ThreadStatic]
    private static bool _isHolding;

    /// <summary>Answers calls on this thread, and then begins to send on all streams that have replies and are not sending.</summary>
    /// <param name="answer">Answers the calls.</param>
    /// <param name="state">Passed to it.</param>
    public static void While<TState>(Action<TState> answer, TState state)
    {
        var held = _held ??= [];
        _isHolding = true;
        try
        {
            answer(state);
        }
        finally
        {
            _isHolding = false;
            Begin(held);
        }
    }

    /// <summary>Takes the beginning of a stream's sending. False if this thread holds none, so that it has to begin at once.</summary>
    public static bool TryHold(IThreadPoolWorkItem sending)
    {
        if (!_isHolding)
            return false;
        _held!.Add(sending);
        return true;
    }

    // One stream is served by this thread, which has nothing else to do, and the others do not wait for it.
    private static void Begin(List<IThreadPoolWorkItem> held)
    {
        if (held.Count == 0)
            return;
        var own = held[^1];
        for (var index = 0; index < held.Count - 1; index++)
            ThreadPool.UnsafeQueueUserWorkItem(held[index], preferLocal: false);
        held.Clear();
        own.Execute();
    }
}
