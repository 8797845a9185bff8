using KvCluster.Simulation.Protocol;

namespace KvCluster.Simulation;

/// <summary>
/// A leader whose disk took 10 ms for a write kept its shard and slowed the whole cluster down to its disk's speed, because only a second counted as
/// slow. KV_LONG=1 runs ten minutes of each seed instead of half a minute.
/// </summary>
[Trait("Turn", "5")]
public sealed class SlowLeaderTests
{
    [Theory]
    [InlineData(5)]
    [InlineData(2)]
    public void SlowDisk_OfALeader_MakesItTransferInSecondsAndNothingOscillates(int seed)
    {
        var kind = ProtocolScenario.All.Single(kind => kind.Name == "leader-disk-slow");
        var seconds = Environment.GetEnvironmentVariable("KV_LONG") == "1" ? 600 : 30;
        var run = new SimulationRun(
            seed, kind with { Draw = random => kind.Draw(random) with { DurationUs = seconds * 1_000_000L } }, InjectedBug.None, detailed: false);
        run.Run();
        Assert.True(run.Activity.Writes > seconds * 20, $"the run did too little: {run.Activity}");
        Assert.True(run.Activity.Epochs > 1, $"no leader with a slow disk transferred: {run.Activity}");
    }
}
