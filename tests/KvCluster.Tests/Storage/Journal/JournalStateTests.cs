using KvCluster.Storage.Journal;
using KvCluster.Storage.Threads;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>The two transition tables of the journal: every pair of a phase and an event, and of two states of a lane.</summary>
public sealed class JournalStateTests
{
    private static readonly Dictionary<(JournalPhase, JournalEvent), JournalPhase> Phases = new()
    {
        [(JournalPhase.Open, JournalEvent.ExclusiveBegins)] = JournalPhase.Exclusive,
        [(JournalPhase.Open, JournalEvent.FoundNoRoom)] = JournalPhase.Draining,
        [(JournalPhase.Open, JournalEvent.Failure)] = JournalPhase.Failed,
        [(JournalPhase.Exclusive, JournalEvent.ExclusiveEnds)] = JournalPhase.Open,
        [(JournalPhase.Exclusive, JournalEvent.Failure)] = JournalPhase.Failed,
        [(JournalPhase.Draining, JournalEvent.FoundNoRoom)] = JournalPhase.Draining,
        [(JournalPhase.Draining, JournalEvent.TakenBack)] = JournalPhase.Open,
        [(JournalPhase.Draining, JournalEvent.Failure)] = JournalPhase.Failed,
        [(JournalPhase.Failed, JournalEvent.ExclusiveEnds)] = JournalPhase.Failed,
        [(JournalPhase.Failed, JournalEvent.FoundNoRoom)] = JournalPhase.Failed,
        [(JournalPhase.Failed, JournalEvent.Failure)] = JournalPhase.Failed,
    };

    // How a lane comes into each state.
    private static readonly Dictionary<LaneState, LaneState[]> Ways = new()
    {
        [LaneState.Idle] = [],
        [LaneState.Posted] = [LaneState.Posted],
        [LaneState.Between] = [LaneState.Posted, LaneState.Filling, LaneState.Between],
        [LaneState.Writing] = [LaneState.Posted, LaneState.Writing],
        [LaneState.Filling] = [LaneState.Posted, LaneState.Filling],
        [LaneState.Rolling] = [LaneState.Posted, LaneState.Rolling],
        [LaneState.Exclusive] = [LaneState.Posted, LaneState.Exclusive],
    };

    [Fact]
    public void Phase_OnEachEvent_MovesAsItsRowSaysOrIsRefused()
    {
        foreach (var phase in Enum.GetValues<JournalPhase>())
        {
            foreach (var happened in Enum.GetValues<JournalEvent>())
            {
                if (Phases.TryGetValue((phase, happened), out var next))
                    Assert.Equal(next, phase.After(happened));
                else
                    Assert.Throws<InvariantException>(() => phase.After(happened));
            }
        }
    }

    [Fact]
    public void Lane_FromEachState_MovesOnlyBetweenItsSteps()
    {
        foreach (var (from, way) in Ways)
        {
            foreach (var to in Enum.GetValues<LaneState>())
            {
                var lane = new JournalLane(new Nowhere(), static _ => { });
                foreach (var state in way)
                    Move(lane, state);
                var isAllowed = from switch
                {
                    LaneState.Idle => to == LaneState.Posted,
                    LaneState.Posted or LaneState.Between => to is not (LaneState.Posted or LaneState.Between),
                    _ => to == LaneState.Between,
                };
                if (!isAllowed)
                {
                    Assert.Throws<InvariantException>(() => Move(lane, to));
                    continue;
                }
                Move(lane, to);
                Assert.Equal((to, from == LaneState.Writing), (lane.State, lane.HasWritten));
            }
        }
    }

    private static void Move(JournalLane lane, LaneState to)
    {
        if (to == LaneState.Writing)
            lane.BeginWrite(new DurableWrite(null!, default, default, 0, default(RecordRef)));
        else if (to is LaneState.Rolling or LaneState.Exclusive)
            lane.BeginExclusive(to, new JournalJob(JournalJobKind.LookForSpace));
        else
            lane.MoveTo(to);
    }

    private sealed class Nowhere : ISerialExecutor
    {
        public bool IsIdle => true;

        public bool IsBehind => false;

        public void Post(IWorkItem item)
        {
        }
    }
}
