using KvCluster.Internal.V1;

namespace KvCluster.Simulation.Protocol;

/// <summary>Delivers frames late, twice, out of order or not at all. Links are cut in one direction or both.</summary>
internal sealed class SimulatedNetwork(SimulationRun run)
{
    private readonly HashSet<(int From, int To)> _cut = [];

    public void Cut(int from, int to) => _cut.Add((from, to));

    /// <summary>Two nodes no longer hear each other.</summary>
    public void CutLink(int one, int other)
    {
        _cut.Add((one, other));
        _cut.Add((other, one));
    }

    public bool IsCut(int from, int to) => _cut.Contains((from, to));

    public void Heal() => _cut.Clear();

    /// <summary>Two nodes hear each other again, and nobody else.</summary>
    public void HealLink(int one, int other)
    {
        _cut.Remove((one, other));
        _cut.Remove((other, one));
    }

    public void Send(int from, int to, Frame frame)
    {
        if (_cut.Contains((from, to)) || (!run.Healed && run.Chance(run.Conditions.LossPermille)))
            return;
        Deliver(from, to, frame);
        if (!run.Healed && run.Chance(run.Conditions.DuplicationPermille))
            Deliver(from, to, frame);
    }

    private void Deliver(int from, int to, Frame frame)
    {
        var late = !run.Healed && run.Chance(run.Conditions.LatePermille);
        var delayUs = 20 + run.Random.NextInt64(late ? run.Conditions.LateUs : run.Conditions.DelayUs);
        run.After(delayUs, () =>
        {
            // A cut also drops frames in flight, except late ones, which arrive anyway.
            if ((!late && _cut.Contains((from, to))) || to > run.Replicas.Count)
                return;
            run.Transcript.Frame(run.NowUs, (uint)from, (uint)to, frame);
            run.Replicas[to - 1].Receive(frame);
        });
    }
}
