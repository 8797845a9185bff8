using System.Diagnostics;

namespace KvCluster.Tests.Storage.Schedules;

/// <summary>Runs a scenario in many orders of its actors' steps.</summary>
internal static class Exploration
{
    /// <summary>Prepares a run: adds actors, and returns what is checked when all of them have ended.</summary>
    public delegate Action Scenario(Schedule schedule);

    /// <summary>
    /// All orders with so many preemptions at most, where an actor that could go on has to wait. At each point where one ends or waits, every other one is
    /// chosen in turn. Returns the number of orders.
    /// </summary>
    /// <param name="scenario">The scenario, which must take the same steps whenever the choices are the same.</param>
    /// <param name="preemptionsMax">How many. Most mistakes need one or two.</param>
    /// <param name="atAccesses">Whether accesses of the engine are switch points, and not only the operations of the scenario.</param>
    /// <param name="runsMin">So many are run however long they take.</param>
    public static int All(Scenario scenario, int preemptionsMax, bool atAccesses, int runsMin)
    {
        using var crew = new Crew();
        // The first run fills pools and runs static constructors, so it may take other steps than the following ones.
        RunOnce(crew, scenario, new AllOrders(0), atAccesses, trace: null);
        var orders = new AllOrders(preemptionsMax);
        var began = Stopwatch.GetTimestamp();
        var runs = 0;
        do
        {
            runs++;
            RunOrTrace(crew, scenario, orders, atAccesses, $"Order {runs} with at most {preemptionsMax} preemptions");
        }
        while (orders.MoveNext() && (runs < runsMin || Seeds.HasTime(began)));
        return runs;
    }

    /// <summary>
    /// Orders by random priorities, of which some change at random steps: a mistake that needs so many changes is found with a probability that does not depend
    /// on how many other steps there are (PCT). Returns the number of orders.
    /// </summary>
    /// <param name="scenario">The scenario.</param>
    /// <param name="seeds">How many orders, 50 times as many in a long run.</param>
    /// <param name="changes">How many priorities change.</param>
    public static int Some(Scenario scenario, int seeds, int changes)
    {
        using var crew = new Crew();
        var steps = RunOnce(crew, scenario, new AllOrders(0), atAccesses: true, trace: null);
        var runs = 0;
        Seeds.Run(seeds, random =>
        {
            runs++;
            var order = new PriorityOrder(random, changes, steps);
            RunOrTrace(crew, scenario, order, atAccesses: true, "An order by priorities");
        });
        return runs;
    }

    private static void RunOrTrace(Crew crew, Scenario scenario, IRepeatable order, bool atAccesses, string what)
    {
        try
        {
            order.Begin();
            RunOnce(crew, scenario, order, atAccesses, trace: null);
        }
        catch (Exception first)
        {
            var trace = new List<string>();
            var again = "The same order again passes.";
            try
            {
                order.Begin();
                RunOnce(crew, scenario, order, atAccesses, trace);
            }
            catch (Exception second)
            {
                again = string.Join('\n', trace) + (second.Message == first.Message ? "" : $"\nThe same order again fails in another way: {second.Message}");
            }
            throw new ScheduleException($"{what} fails: {first.Message}\nSwitches:\n{again}", first);
        }
    }

    private static int RunOnce(Crew crew, Scenario scenario, IOrder order, bool atAccesses, List<string>? trace)
    {
        // A run that has failed may have left its store.
        Stepped.FreedPages.Space = null;
        var schedule = new Schedule(crew, order, atAccesses) { Trace = trace };
        var check = scenario(schedule);
        schedule.Run();
        check();
        return schedule.Steps;
    }

    /// <summary>An order that makes the same choices again after this.</summary>
    private interface IRepeatable : IOrder
    {
        void Begin();
    }

    /// <summary>One order after the other: each is the one before it up to some choice, where the next actor is taken.</summary>
    private sealed class AllOrders(int preemptionsMax) : IRepeatable
    {
        private readonly List<(int Of, int Chosen, bool IsPreemption)> _choices = [];
        private int _at;

        public void Begin() => _at = 0;

        public int Choose(List<Schedule.Actor> ready, int step, bool isPreemption)
        {
            if (_at == _choices.Count)
                _choices.Add((ready.Count, 0, isPreemption));
            var (of, chosen, wasPreemption) = _choices[_at++];
            return (of, wasPreemption) == (ready.Count, isPreemption)
                ? chosen
                : throw new ScheduleException($"The scenario takes other steps with the same choices, at choice {_at} and step {step}.", null);
        }

        /// <summary>Goes on to the next order; false if there is none.</summary>
        public bool MoveNext()
        {
            var preemptions = _choices.Count(IsMade);
            while (_choices.Count > 0)
            {
                var (of, chosen, isPreemption) = _choices[^1];
                preemptions -= IsMade(_choices[^1]) ? 1 : 0;
                _choices.RemoveAt(_choices.Count - 1);
                if (chosen + 1 == of || (isPreemption && preemptions == preemptionsMax))
                    continue;
                _choices.Add((of, chosen + 1, isPreemption));
                return true;
            }
            return false;
        }

        private static bool IsMade((int Of, int Chosen, bool IsPreemption) choice) => choice is { IsPreemption: true, Chosen: > 0 };
    }

    private sealed class PriorityOrder : IRepeatable
    {
        private readonly int _seed;
        private readonly HashSet<int> _changes = [];
        private readonly Dictionary<int, int> _priorities = [];
        private Random _random;
        private int _lowest;

        public PriorityOrder(Random random, int changes, int steps)
        {
            _seed = random.Next();
            _random = new Random(_seed);
            while (_changes.Count < Math.Min(changes, steps))
                _changes.Add(1 + random.Next(steps));
        }

        public void Begin()
        {
            _random = new Random(_seed);
            _priorities.Clear();
            _lowest = 0;
        }

        public int Choose(List<Schedule.Actor> ready, int step, bool isPreemption)
        {
            if (isPreemption && _changes.Contains(step))
                _priorities[ready[0].Number] = --_lowest;
            var best = 0;
            for (var index = 1; index < ready.Count; index++)
                best = PriorityOf(ready[index]) > PriorityOf(ready[best]) ? index : best;
            return best;
        }

        private int PriorityOf(Schedule.Actor actor) =>
            _priorities.TryGetValue(actor.Number, out var priority) ? priority : _priorities[actor.Number] = 1 + _random.Next(1 << 30);
    }
}
