namespace KvCluster.Simulation.Protocol;

/// <summary>One caller with one operation at a time: puts, conditional puts, reads, from few keys so that callers meet.</summary>
internal sealed class SimulatedClient(SimulationRun run)
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
        var key = run.Random.Next(Keys);
        var writes = run.Random.Next(100) < 55;
        var floor = run.Checker.Floor;
        var writeId = writes ? run.NextWriteId() : 0;
        long? expected = writes && run.Random.Next(3) == 0 ? _seen.GetValueOrDefault(key) : null;
        var call = new SimulatedCall(key, writeId, expected, !writes && run.Random.Next(6) == 0, answer =>
            run.After(20 + run.Random.NextInt64(run.Scenario.DelayUs), () =>
            {
                Judge(key, writeId, answer, floor);
                if (operation == _operation)
                    Continue(key, answer);
            }));
        var node = _node;
        run.After(20 + run.Random.NextInt64(run.Scenario.DelayUs), () => run.Replicas[node - 1].Call(call));
        run.After(TimeoutUs, () =>
        {
            if (operation == _operation)
                Elsewhere();
        });
    }

    // Late answers are judged as well: they are answers.
    private void Judge(int key, long writeId, SimulatedAnswer answer, Etag floor)
    {
        switch (answer.Outcome)
        {
            case SimulatedOutcome.Applied:
                run.Checker.OnWritten(writeId, answer.Etag, floor);
                break;
            case SimulatedOutcome.Read:
                run.Checker.OnRead(key, answer.Value, answer.Etag, floor);
                if (writeId != 0)
                    run.Checker.OnNotApplied(writeId);
                break;
            case SimulatedOutcome.NotLeader when writeId != 0:
                run.Checker.OnNotApplied(writeId);
                break;
        }
    }

    private void Continue(int key, SimulatedAnswer answer)
    {
        if (answer.Outcome is SimulatedOutcome.Applied or SimulatedOutcome.Read)
        {
            _seen[key] = answer.Value;
            run.After(run.Random.NextInt64(500, 30_000), Next);
        }
        else
        {
            Elsewhere();
        }
    }

    private void Elsewhere()
    {
        _node = run.Random.Next(2) == 0 ? run.LeaderHint : run.Random.Next(run.Replicas.Count) + 1;
        _operation++;
        run.After(run.Random.NextInt64(5_000, 40_000), Next);
    }
}
