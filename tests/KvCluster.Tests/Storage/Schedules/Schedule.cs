using System.Diagnostics;
using System.Reflection;

namespace KvCluster.Tests.Storage.Schedules;

/// <summary>
/// One run of some actors, each on a thread of its own, of which only one runs at a time: the next is chosen at every switch point by an
/// <see cref="IOrder"/>. Switch points are the accesses of the engine that other threads may see (<see cref="EngineRewriting"/>), and those of the test
/// itself. A run in which no actor can go on, or which does not end, has failed, and so has one in which an actor throws.
/// </summary>
/// <remarks>
/// Each access takes effect at once and for all, so what is explored is sequentially consistent: that a fence is missing is not found.
/// </remarks>
internal sealed class Schedule
{
    /// <summary>More than any run takes. One that takes as many waits in a loop for what no other actor does.</summary>
    private const int StepsMax = 200_000;

    [ThreadStatic]
    private static Actor? _self;

    private readonly Crew _crew;
    private readonly IOrder _order;
    private readonly bool _switchesAtAccesses;
    private readonly List<Actor> _actors = [];
    private readonly List<Actor> _ready = [];
    private readonly Gate _ended = new();
    private Exception? _failure;

    /// <param name="crew">Its threads.</param>
    /// <param name="order">Chooses.</param>
    /// <param name="switchesAtAccesses">Whether accesses of the engine are switch points, and not only those of the test.</param>
    public Schedule(Crew crew, IOrder order, bool switchesAtAccesses) => (_crew, _order, _switchesAtAccesses) = (crew, order, switchesAtAccesses);

    /// <summary>The number of the actor that runs; 0 outside a run.</summary>
    public static int ActorNumber => _self?.Number ?? 0;

    /// <summary>The switch points so far.</summary>
    public int Steps { get; private set; }

    /// <summary>If it is set, it gets each switch from one actor to another.</summary>
    public List<string>? Trace { get; init; }

    /// <summary>An access that other threads may see follows. Called by the engine's code; outside a run it does nothing.</summary>
    public static void BeforeAccess()
    {
        if (_self is { } self && self.Schedule._switchesAtAccesses)
            self.Schedule.Switch(self, mayGoOn: true);
    }

    /// <summary>An operation of the actor is done, and another one follows.</summary>
    public static void Operation()
    {
        if (_self is { } self)
            self.Schedule.Switch(self, mayGoOn: true);
    }

    /// <summary>Others may go on, if there are any: the actor waits for something.</summary>
    public static void Yield()
    {
        if (_self is { } self && self.Schedule.HasOthers(self))
            self.Schedule.Switch(self, mayGoOn: false);
    }

    /// <summary>Waits until others have made a condition true. It is asked between their steps and must change nothing.</summary>
    public static void Until(Func<bool> condition)
    {
        while (!condition())
        {
            var self = _self ?? throw new InvalidOperationException("Nobody can change what is waited for outside a run.");
            self.Condition = condition;
            self.Schedule.Switch(self, mayGoOn: false);
            self.Condition = null;
        }
    }

    /// <summary>Adds an actor to the run in progress.</summary>
    public static void Start(string name, Action work) =>
        (_self ?? throw new InvalidOperationException("There is no run in progress.")).Schedule.Add(name, work);

    /// <summary>Adds an actor.</summary>
    public void Add(string name, Action work)
    {
        var actor = new Actor(this, _actors.Count + 1, name, work);
        _actors.Add(actor);
        _crew.Take(actor);
    }

    /// <summary>Runs the actors until all have ended.</summary>
    /// <exception cref="ScheduleException">One has failed, or none can go on.</exception>
    public void Run()
    {
        WakeNext(Choose(null));
        _ended.Wait();
        if (_failure is not null)
            throw new ScheduleException(_failure is ScheduleException ? _failure.Message : _failure.ToString(), _failure);
    }

    private bool HasOthers(Actor self)
    {
        FindReady(self);
        return _ready.Count > 0;
    }

    private void FindReady(Actor? self)
    {
        _ready.Clear();
        foreach (var actor in _actors)
        {
            if (actor != self && !actor.HasEnded && actor.Condition?.Invoke() != false)
                _ready.Add(actor);
        }
    }

    /// <summary>Null if none can go on.</summary>
    private Actor? Choose(Actor? goesOn)
    {
        FindReady(goesOn);
        // The one that runs is the first choice: to take another one is a preemption.
        if (goesOn is not null)
            _ready.Insert(0, goesOn);
        return _ready.Count switch
        {
            0 => null,
            1 => _ready[0],
            _ => _ready[_order.Choose(_ready, Steps, isPreemption: goesOn is not null)],
        };
    }

    private void Switch(Actor self, bool mayGoOn)
    {
        if (_failure is not null)
            throw new ScheduleEndedException();
        if (++Steps > StepsMax)
            _failure = new ScheduleException($"The run does not end: it has taken {StepsMax} steps.", null);
        var next = Choose(mayGoOn ? self : null);
        if (next is null)
            _failure ??= Stuck();
        if (_failure is not null)
            throw new ScheduleEndedException();
        if (next == self)
            return;
        Trace?.Add($"{self.Name} before {Where()}, {next!.Name} goes on");
        next!.Go.Open();
        self.Go.Wait();
        if (_failure is not null)
            throw new ScheduleEndedException();
    }

    private ScheduleException Stuck() => new(
        $"No actor can go on; these have not ended: {string.Join(", ", _actors.Where(static actor => !actor.HasEnded).Select(static actor => actor.Name))}.",
        null);

    private void End(Actor self, Exception? failure)
    {
        self.HasEnded = true;
        _failure ??= failure;
        var next = TryChoose();
        if (next is null && _actors.Exists(static actor => !actor.HasEnded))
        {
            _failure ??= Stuck();
            // Those that have not ended unwind one after the other.
            next = _actors.Find(static actor => !actor.HasEnded);
        }
        if (next is not null && _failure is null)
            Trace?.Add($"{self.Name} has ended, {next.Name} goes on");
        WakeNext(next);
    }

    /// <summary>The next one after an actor has ended, or null.</summary>
    private Actor? TryChoose()
    {
        try
        {
            return _failure is null ? Choose(null) : null;
        }
        catch (Exception exception)
        {
            // A condition has failed, or the run takes other steps than it did.
            _failure = exception;
            return null;
        }
    }

    private void WakeNext(Actor? next) => (next?.Go ?? _ended).Open();

    /// <summary>The method of the engine or the test that is at a switch point.</summary>
    private static string Where()
    {
        foreach (var frame in new StackTrace().GetFrames())
        {
            if (frame.GetMethod() is { DeclaringType: { } type } method && type.Namespace != typeof(Stepped.Volatile).Namespace && type != typeof(Schedule))
                return $"{type.Name}.{method.Name}";
        }
        return "its end";
    }

    /// <summary>What takes steps of its own.</summary>
    internal sealed class Actor(Schedule schedule, int number, string name, Action work)
    {
        public Schedule Schedule => schedule;

        public int Number => number;

        public string Name => name;

        public Gate Go { get; } = new();

        /// <summary>What it waits for; null: nothing.</summary>
        public Func<bool>? Condition { get; set; }

        public bool HasEnded { get; set; }

        /// <summary>Called by a thread of the crew.</summary>
        public void Run()
        {
            Go.Wait();
            _self = this;
            Exception? failure = null;
            try
            {
                if (schedule._failure is null)
                    work();
            }
            catch (ScheduleEndedException)
            {
                // Another actor has failed.
            }
            catch (Exception exception)
            {
                failure = exception is TargetInvocationException { InnerException: { } inner } ? inner : exception;
            }
            _self = null;
            schedule.End(this, failure);
        }
    }
}

/// <summary>Lets one thread through each time that it is opened. Nobody spins before it, because most wait for long.</summary>
internal sealed class Gate
{
    private readonly object _lock = new();
    private bool _isOpen;

    public void Open()
    {
        lock (_lock)
        {
            _isOpen = true;
            Monitor.Pulse(_lock);
        }
    }

    public void Wait()
    {
        lock (_lock)
        {
            while (!_isOpen)
                Monitor.Wait(_lock);
            _isOpen = false;
        }
    }
}

/// <summary>Chooses who takes the next step.</summary>
internal interface IOrder
{
    /// <summary>The index of the next one.</summary>
    /// <param name="ready">Those that can go on, at least two.</param>
    /// <param name="step">The number of the step.</param>
    /// <param name="isPreemption">Whether the first one is running and is preempted if another one is chosen.</param>
    int Choose(List<Schedule.Actor> ready, int step, bool isPreemption);
}

/// <summary>A run has failed.</summary>
internal sealed class ScheduleException(string message, Exception? inner) : Exception(message, inner);

/// <summary>Ends an actor because the run has failed.</summary>
internal sealed class ScheduleEndedException : Exception;

/// <summary>Threads for actors, one run after another.</summary>
internal sealed class Crew : IDisposable
{
    private readonly Stack<Member> _idle = new();
    private bool _isDisposed;

    /// <summary>Gives an actor a thread, on which it waits for its first step.</summary>
    public void Take(Schedule.Actor actor)
    {
        Member? member;
        lock (_idle)
            _idle.TryPop(out member);
        (member ?? new Member(this)).Work(actor);
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        lock (_idle)
        {
            _isDisposed = true;
            while (_idle.TryPop(out var member))
                member.Work(null);
        }
    }

    private bool TryKeep(Member member)
    {
        lock (_idle)
        {
            if (!_isDisposed)
                _idle.Push(member);
            return !_isDisposed;
        }
    }

    private sealed class Member
    {
        private readonly Crew _crew;
        private readonly Gate _next = new();
        private Schedule.Actor? _actor;

        public Member(Crew crew)
        {
            _crew = crew;
            new Thread(Run) { IsBackground = true, Name = "actor" }.Start();
        }

        public void Work(Schedule.Actor? actor)
        {
            _actor = actor;
            _next.Open();
        }

        private void Run()
        {
            for (_next.Wait(); _actor is { } actor; _next.Wait())
            {
                actor.Run();
                if (!_crew.TryKeep(this))
                    return;
            }
        }
    }
}
