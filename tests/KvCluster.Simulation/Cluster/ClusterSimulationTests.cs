using System.Collections.Concurrent;
using System.Diagnostics;
using KvCluster.Replication;
using KvCluster.Simulation.Protocol;
using Xunit.Abstractions;

namespace KvCluster.Simulation.Cluster;

/// <summary>Whole replicas from many seeds: what the protocol's own simulation cannot show, that driver, engine and recovery keep its promises together.</summary>
public sealed class ClusterSimulationTests(ITestOutputHelper output)
{
    private const int SeedsInCi = 500;
    private const int SeedsForABug = 400;

    [Fact]
    public void EverySeed_CrashesAndCuts_LosesNothingAndEndsWithEqualTrees()
    {
        if (Environment.GetEnvironmentVariable("KV_SEED") is { Length: > 0 } one)
        {
            new ClusterRun(int.Parse(one)).Run();
            return;
        }

        var seeds = Environment.GetEnvironmentVariable("KV_SEEDS") is { Length: > 0 } more ? int.Parse(more) : SeedsInCi;
        var (acknowledged, reads, epochs) = (0L, 0L, 0L);
        var watch = Stopwatch.StartNew();
        Parallel.For(1, seeds + 1, new ParallelOptions { MaxDegreeOfParallelism = Environment.ProcessorCount }, seed =>
        {
            var run = new ClusterRun(seed);
            run.Run();
            Interlocked.Add(ref acknowledged, run.Acknowledged);
            Interlocked.Add(ref reads, run.ReadsAnswered);
            Interlocked.Add(ref epochs, (long)run.Record.Epoch);
        });
        output.WriteLine($"{seeds} seeds: {acknowledged} acknowledged writes, {reads} reads, {epochs} epochs, {watch.Elapsed.TotalSeconds:F1} s");
        Assert.True(acknowledged > seeds * 50L && reads > seeds * 50L && epochs > seeds * 2L, "the runs did too little");
    }

    [Fact]
    public void OneSeed_RunTwice_TakesTheSameCourse()
    {
        var (first, second) = (new ClusterRun(7), new ClusterRun(7));
        first.Run();
        second.Run();
        Assert.Equal((first.Time.NowUs, first.Acknowledged, first.ReadsAnswered), (second.Time.NowUs, second.Acknowledged, second.ReadsAnswered));
    }

    [Theory]
    [InlineData(nameof(PlantedBug.AckBeforeSync))]
    [InlineData(nameof(PlantedBug.CommitBeforeMatch))]
    [InlineData(nameof(PlantedBug.ServeBeforeOpen))]
    public void PlantedBug_IsCaught(string name)
    {
        var bug = Enum.Parse<PlantedBug>(name);
        var caught = new ConcurrentBag<(int Seed, string What)>();
        Parallel.For(1, SeedsForABug + 1, new ParallelOptions { MaxDegreeOfParallelism = Environment.ProcessorCount }, (seed, state) =>
        {
            try
            {
                new ClusterRun(seed, bug).Run();
            }
            catch (SimulationFailedException found)
            {
                caught.Add((seed, found.Message.Split('\n')[0]));
                state.Stop();
            }
        });
        Assert.NotEmpty(caught);
        output.WriteLine($"{bug}: {caught.Min()}");
    }
}
