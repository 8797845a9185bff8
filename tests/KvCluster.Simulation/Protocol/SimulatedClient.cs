namespace KvCluster.Simulation.Protocol;

/// <summary>One caller with one operation at a time: puts of one or several keys, some of them conditional, reads and scans. There are few keys, so
/// callers conflict.</summary>
/// <param name="run">The run.</param>
/// <param name="writesPercent">The percentage of writes. A caller that hardly writes stays with a leader that was cut off.</param>
internal sealed class SimulatedClient(SimulationRun run, int writesPercent)
{
    private const long TimeoutUs = 700_000;
    private const int Keys = 4;

    private readonly Dictionary<int, long> _seen = [];
    private int _node = 1;
    private long _operation;

    public void Start() => run.After(run.Random.NextInt64(10_000), Next);

    private void Next()
    {
        var operation = ++_operation;
        var writes = run.Random.Next(100) < writesPercent;
        var keys = DrawKeys(several: run.Random.Next(4) == 0);
        var floor = run.Checker.Floor;
        var writeId = writes ? run.NextWriteId() : 0;
        long? expected = writes && run.Random.Next(3) == 0 ? _seen.GetValueOrDefault(keys[0]) : null;
        var call = new SimulatedCall(keys, writeId, expected, !writes && run.Random.Next(6) == 0, answer =>
            run.After(20 + run.Random.NextInt64(run.Conditions.DelayUs), () =>
            {
                Judge(keys, writeId, answer, floor);
                if (operation == _operation)
                    Continue(keys, writeId, answer);
            }));
        var node = _node;
        run.After(20 + run.Random.NextInt64(run.Conditions.DelayUs), () => run.Replicas[node - 1].Call(call));
        run.After(TimeoutUs, () =>
        {
            if (operation == _operation)
                Elsewhere();
        });
    }

    private int[] DrawKeys(bool several)
    {
        var first = run.Random.Next(Keys);
        return several ? [.. Enumerable.Range(0, run.Random.Next(2, Keys + 1)).Select(next => (first + next) % Keys)] : [first];
    }

    // Late answers are checked as well.
    private void Judge(int[] keys, long writeId, SimulatedAnswer answer, Etag floor)
    {
        run.Transcript.Answer(run.NowUs, answer.Outcome.ToString(), answer.Etag);
        switch (answer.Outcome)
        {
            case SimulatedOutcome.Applied:
                run.Checker.OnWritten(writeId, answer.Etag, floor);
                break;
            case SimulatedOutcome.Read:
                run.Checker.OnRead(keys, answer.Values, answer.Etag, floor, failedCondition: writeId != 0);
                if (writeId != 0)
                    run.Checker.OnNotApplied(writeId);
                break;
            case SimulatedOutcome.NotLeader when writeId != 0:
                run.Checker.OnNotApplied(writeId);
                break;
        }
    }

    private void Continue(int[] keys, long writeId, SimulatedAnswer answer)
    {
        if (answer.Outcome is not (SimulatedOutcome.Applied or SimulatedOutcome.Read))
        {
            Elsewhere();
            return;
        }

        for (var i = 0; i < keys.Length; i++)
            _seen[keys[i]] = answer.Outcome == SimulatedOutcome.Applied ? writeId : answer.Values[i];
        run.After(run.Random.NextInt64(500, 30_000), Next);
    }

    private void Elsewhere()
    {
        if (writesPercent > 0 || run.Random.Next(4) == 0)
            _node = run.Random.Next(2) == 0 ? run.LeaderHint : run.Random.Next(run.Replicas.Count) + 1;
        _operation++;
        run.After(run.Random.NextInt64(5_000, 40_000), Next);
    }
}
