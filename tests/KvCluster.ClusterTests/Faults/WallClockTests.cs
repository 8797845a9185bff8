using System.Diagnostics;
using System.Globalization;
using System.Text;
using KvCluster.Client;
using KvCluster.Processes;

namespace KvCluster.ClusterTests.Faults;

/// <summary>
/// F48 with processes: keys with a time to live while wall clocks step and disagree. Their lives are measured from outside, by this process' own clock. A key
/// of 6 s ended after 3.3 when the clock was set ten minutes forward, and after 13.5 when it was set back.
/// </summary>
[Trait("Turn", "6")]
public sealed class WallClockTests(Xunit.Abstractions.ITestOutputHelper output)
{
    private static readonly TimeSpan TenMinutes = TimeSpan.FromMinutes(10);

    /// <summary>
    /// The promise is a quarter of a second and the time without a leader. What a busy machine takes from the leader's process, or by its disk, comes on top.
    /// </summary>
    private static readonly TimeSpan LateMax = TimeSpan.FromSeconds(2);

    [WallClockFact]
    public async Task F48_LivesOfKeys_WhileWallClocksStepAndDisagree_AreNotShorterAndHardlyLonger()
    {
        using var folder = new TemporaryDirectory();
        var clocks = Enumerable.Range(1, 3).Select(node => new WallClock(Path.Combine(folder.Path, $"clock{node}"))).ToArray();
        // The third is a day ahead, from its start.
        clocks[0].Set(TimeSpan.Zero);
        clocks[1].Set(TimeSpan.Zero);
        clocks[2].Set(TimeSpan.FromDays(1));
        await using var cluster = await FaultCluster.StartAsync(prepare: node => node.Wrapper = clocks[node.Node - 1].Wrapper);
        await using var client = new KvClient(new KvClientOptions { Endpoints = cluster.DirectEndpoints, Timeout = Eventually.Limit });
        await cluster.UntilLeadsAsync(1);
        using var loop = new BareLoop(cluster.Folder);

        var lives = new[] { 3, 6, 9, 12, 18, 24 }.Select(seconds => MeasureAsync(client, loop, TimeSpan.FromSeconds(seconds))).ToList();
        await Task.Delay(2_000);
        clocks[0].Set(TenMinutes);
        await Task.Delay(3_000);
        clocks[0].Set(-TenMinutes);
        await Task.Delay(3_000);
        // Those that begin now began by a clock that was set back.
        lives.AddRange(new[] { 4, 8, 12 }.Select(seconds => MeasureAsync(client, loop, TimeSpan.FromSeconds(seconds))));
        await Task.Delay(1_000);
        // To a node whose clock is a day ahead, and back.
        await cluster.UntilLeadsAsync(3);
        await Task.Delay(3_000);
        await cluster.UntilLeadsAsync(2);
        var ended = await Task.WhenAll(lives);
        foreach (var one in ended)
            output.WriteLine(one.ToString());
        Assert.All(ended, static one => Assert.True(one.LongestPossible >= one.Asked, $"early: {one}"));
        Assert.All(ended, static one => Assert.True(one.ShortestPossible <= one.Asked + LateMax + one.Machine + (one.Asked / 1_000), $"late: {one}"));
    }

    private static async Task<Life> MeasureAsync(KvClient client, BareLoop loop, TimeSpan asked)
    {
        var lost = loop.Lost;
        var key = Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"life/{Guid.NewGuid()}"));
        var sent = Stopwatch.GetTimestamp();
        await client.PutAsync(key, "value"u8.ToArray(), new KvPutOptions { TimeToLive = asked });
        var (acknowledged, lastSeen, silence) = (Stopwatch.GetTimestamp(), Stopwatch.GetTimestamp(), TimeSpan.Zero);
        while (true)
        {
            var asking = Stopwatch.GetTimestamp();
            var read = await client.GetAsync(key);
            // What a change of leaders took; in such a time no key can end.
            if (Stopwatch.GetElapsedTime(asking) is var took && took > TimeSpan.FromMilliseconds(250))
                silence += took;
            if (!read.Found)
                return new Life(asked, Stopwatch.GetElapsedTime(acknowledged, lastSeen) - silence, Stopwatch.GetElapsedTime(sent), loop.Lost - lost);
            lastSeen = asking;
            await Task.Delay(20);
        }
    }

    /// <summary>How long a key lived.</summary>
    /// <param name="Asked">What was asked for.</param>
    /// <param name="ShortestPossible">It was there so long after its put was acknowledged, without the time in which nobody answered.</param>
    /// <param name="LongestPossible">So long after its put was sent it was gone.</param>
    /// <param name="Machine">What a bare loop lost meanwhile.</param>
    private sealed record Life(TimeSpan Asked, TimeSpan ShortestPossible, TimeSpan LongestPossible, TimeSpan Machine);
}
