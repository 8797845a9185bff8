using System.Collections.Concurrent;
using System.Diagnostics;
using KvCluster.Replication;
using Xunit.Abstractions;

namespace KvCluster.Simulation.Protocol;

/// <summary>
/// The protocol from many seeds. KV_SEED=N runs one seed again, KV_SEEDS=N runs more of them. A run checks while it goes on: one leader serves an
/// epoch, committed prefixes agree, answers are those of one copy, etags rise; and at the end that all replicas hold the same.
/// </summary>
public sealed class ProtocolSimulationTests(ITestOutputHelper output)
{
    private const int SeedsInCi = 1_000;
    private const int SeedsForABug = 1_000;

    [Fact]
    public void EverySeed_UnderFaults_KeepsOneCopyHistory()
    {
        if (Environment.GetEnvironmentVariable("KV_SEED") is { Length: > 0 } one)
        {
            new SimulationRun(int.Parse(one)).Run();
            return;
        }

        var seeds = Environment.GetEnvironmentVariable("KV_SEEDS") is { Length: > 0 } more ? int.Parse(more) : SeedsInCi;
        var (writes, reads, epochs, snapshots, handOvers, changes, followerReads) = (0L, 0L, 0L, 0L, 0L, 0L, 0L);
        var watch = Stopwatch.StartNew();
        Parallel.For(1, seeds + 1, new ParallelOptions { MaxDegreeOfParallelism = Environment.ProcessorCount }, seed =>
        {
            var run = new SimulationRun(seed);
            run.Run();
            Interlocked.Add(ref writes, run.Checker.AnsweredWrites);
            Interlocked.Add(ref reads, run.Checker.AnsweredReads);
            Interlocked.Add(ref epochs, run.Checker.Epochs);
            Interlocked.Add(ref snapshots, run.SnapshotsInstalled);
            Interlocked.Add(ref handOvers, run.LeadershipsHandedOver);
            Interlocked.Add(ref changes, run.ReplicasChanged);
            Interlocked.Add(ref followerReads, run.FollowerReadsAnswered);
        });
        output.WriteLine($"{seeds} seeds: {writes} acknowledged writes, {reads} reads, {epochs} epochs served, {snapshots} snapshots installed, {handOvers} leaderships handed over, {changes} changes of replicas, {followerReads} reads at followers, {watch.Elapsed.TotalSeconds:F1} s");
        // A suite in which nothing happens proves nothing.
        Assert.True(writes > seeds * 50L && reads > seeds * 50L && epochs > seeds * 2L, "the runs did too little");
        Assert.True(seeds < SeedsInCi || snapshots > seeds / 50, "too few runs installed a snapshot");
        Assert.True(seeds < SeedsInCi || handOvers > seeds / 50, "too few runs handed a leadership over");
        Assert.True(seeds < SeedsInCi || changes > seeds / 20, "too few runs changed the replicas");
        Assert.True(followerReads > seeds, "too few reads were answered by followers");
    }

    [Fact]
    public void OneSeed_RunTwice_TakesTheSameCourse()
    {
        var (first, second) = (new SimulationRun(7), new SimulationRun(7));
        first.Run();
        second.Run();
        Assert.Equal((first.NowUs, first.Checker.Last, first.Checker.AnsweredReads), (second.NowUs, second.Checker.Last, second.Checker.AnsweredReads));
    }

    [Theory]
    [InlineData(nameof(PlantedBug.CommitBeforeMatch))]
    [InlineData(nameof(PlantedBug.ServeBeforeOpen))]
    [InlineData(nameof(PlantedBug.NoEpochCheck))]
    [InlineData(nameof(PlantedBug.AckBeforeSync))]
    [InlineData(nameof(PlantedBug.CutToCommitted))]
    [InlineData(nameof(PlantedBug.UnknownIsWon))]
    public void PlantedBug_IsCaughtWithinAThousandSeeds(string name)
    {
        var bug = Enum.Parse<PlantedBug>(name);
        var caught = new ConcurrentBag<(int Seed, string What)>();
        Parallel.For(1, SeedsForABug + 1, new ParallelOptions { MaxDegreeOfParallelism = Environment.ProcessorCount }, (seed, state) =>
        {
            try
            {
                new SimulationRun(seed, bug).Run();
            }
            catch (SimulationFailedException found)
            {
                caught.Add((seed, found.Message.Split('\n')[0]));
                state.Stop();
            }
        });
        Assert.NotEmpty(caught);
        output.WriteLine($"{bug}: {caught.Min()}");
    }}
