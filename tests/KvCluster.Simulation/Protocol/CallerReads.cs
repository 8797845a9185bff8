using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation.Protocol;

/// <summary>
/// Reads of callers at a process: under the lease, by a round of heartbeats, or at a follower, which asks its leader up to where it must have
/// applied.
/// </summary>
internal sealed class CallerReads(SimulationRun run, SimulatedProcess process, FaultyDriver driver)
{
    private readonly Dictionary<long, SimulatedCall> _awaitingRound = [];
    private readonly Dictionary<long, SimulatedCall> _awaitingLeader = [];
    private readonly List<(Etag Committed, SimulatedCall Call)> _awaitingState = [];
    private long _readIdLast;
    private long _followerReadIdLast;

    /// <summary>A read at the leader. A published failed condition is a read like any other: of the published state, under the lease or with a round.</summary>
    public void Read(SimulatedCall call)
    {
        if ((!call.Quorum && process.Now < process.Core.LeaseEndUs) || (driver.AnswersByEarlierRound && process.IsServing))
        {
            Answer(call);
            return;
        }

        var id = ++_readIdLast;
        _awaitingRound[id] = call;
        process.Step(new Event.ReadArrived(id));
    }

    /// <summary>A read at a follower.</summary>
    public void ReadAtFollower(SimulatedCall call)
    {
        _awaitingLeader[++_followerReadIdLast] = call;
        process.Step(new Event.FollowerReadArrived(_followerReadIdLast));
    }

    /// <summary>Answers from the published state.</summary>
    public void Answer(SimulatedCall call)
    {
        var found = call.Keys.Select(process.Tree.WriteOf).ToArray();
        // A condition that failed before may hold by now. Then it is only known that the write was not applied.
        var outcome = call.Expected == found[0] && call.WriteId != 0 ? SimulatedOutcome.NotLeader : SimulatedOutcome.Read;
        call.Answer(new SimulatedAnswer(outcome, process.Published, found));
    }

    public void Confirmed(long readIdLast)
    {
        foreach (var call in TakeUpTo(_awaitingRound, readIdLast))
            Answer(call);
    }

    public void Refused(long readIdLast)
    {
        foreach (var call in TakeUpTo(_awaitingRound, readIdLast))
            call.Answer(SimulatedAnswer.Of(SimulatedOutcome.NotLeader));
    }

    public void LeaderTold(long readIdLast, Etag committed)
    {
        foreach (var call in TakeUpTo(_awaitingLeader, readIdLast))
            _awaitingState.Add((committed, call));
        AnswerPublished();
    }

    public void LeaderSilent(long readIdLast)
    {
        foreach (var call in TakeUpTo(_awaitingLeader, readIdLast))
            call.Answer(SimulatedAnswer.Of(SimulatedOutcome.NotLeader));
    }

    /// <summary>Answers reads at a follower that has applied what its leader named.</summary>
    public void AnswerPublished()
    {
        foreach (var (_, call) in _awaitingState.Where(read => read.Committed <= process.Published))
        {
            run.FollowerReadsAnswered++;
            Answer(call);
        }

        _awaitingState.RemoveAll(read => read.Committed <= process.Published);
    }

    private static IEnumerable<SimulatedCall> TakeUpTo(Dictionary<long, SimulatedCall> calls, long idLast)
    {
        foreach (var id in calls.Keys.Where(id => id <= idLast).ToList())
        {
            calls.Remove(id, out var call);
            yield return call!;
        }
    }
}
