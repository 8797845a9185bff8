using System.Runtime.CompilerServices;

namespace KvCluster.Tests.Storage.Schedules.Stepped;

/// <inheritdoc cref="Volatile"/>
/// <remarks>Entering it is the switch point: what happens under a lock is not divided for those who take it, too.</remarks>
internal sealed class Lock
{
    private int _holder;
    private int _entries;

    public bool IsHeldByCurrentThread => _entries > 0 && _holder == Schedule.ActorNumber;

    public Scope EnterScope()
    {
        Enter();
        return new Scope(this);
    }

    public void Enter()
    {
        Schedule.BeforeAccess();
        Schedule.Until(() => _entries == 0 || IsHeldByCurrentThread);
        _holder = Schedule.ActorNumber;
        _entries++;
    }

    public void Exit() => _entries--;

    internal readonly ref struct Scope(Lock held)
    {
        public void Dispose() => held.Exit();
    }
}

/// <inheritdoc cref="Lock"/>
internal static class Monitor
{
    private static readonly ConditionalWeakTable<object, State> _states = [];

    public static void Enter(object held, ref bool isTaken)
    {
        Of(held).Lock.Enter();
        isTaken = true;
    }

    public static void Exit(object held) => Of(held).Lock.Exit();

    public static bool IsEntered(object held) => Of(held).Lock.IsHeldByCurrentThread;

    /// <summary>Waits for a pulse; what is waited for with a time as well is not under test.</summary>
    public static bool Wait(object held)
    {
        var state = Of(held);
        var ticket = state.Waiting++;
        state.Lock.Exit();
        Schedule.Until(() => ticket < state.Pulsed);
        state.Lock.Enter();
        return true;
    }

    public static void Pulse(object held)
    {
        var state = Of(held);
        if (state.Pulsed < state.Waiting)
            state.Pulsed++;
    }

    private static State Of(object held) => _states.GetValue(held, static _ => new State());

    private sealed class State
    {
        public Lock Lock { get; } = new();

        public int Waiting;
        public int Pulsed;
    }
}
