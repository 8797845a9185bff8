using System.Runtime.ExceptionServices;
using KvCluster.Client;
using Xunit.Abstractions;

namespace KvCluster.Tests.Client.Hostile;

/// <summary>
/// The library among nodes that mean it no good, in a time of their own: stale maps, connections that swallow everything, nodes that are half dead, calls that
/// are given up, and clients that are closed while calls are in progress. KV_SEED repeats a run, KV_LONG=1 makes many.
/// </summary>
public sealed class HostileNodesTests(ITestOutputHelper output)
{
    private const int Runs = 12;
    private const int LateMsMax = 100;

    [Fact]
    public void Calls_AmongHostileNodes_EndInTime_AreAppliedOnce_AndAnsweredWithWhatWasSo()
    {
        var tally = new HostileTally();
        Seeds.Run(Runs, random => Alone(() => new HostileRun(random, tally).Run()));
        output.WriteLine(tally.ToString());
        Assert.True(tally.Runs < Runs || tally.IsWhole, tally.ToString());
    }

    /// <summary>A scan whose first stream broke waited the whole time again for the second one, so that it took up to twice as long as allowed.</summary>
    [Fact]
    public void Scan_WhoseFirstStreamBreaks_StillEndsInTime() => Alone(() =>
    {
        const int timeMs = 1_000;
        var (clock, cluster, links, client) = Quiet();
        var scan = client.ScanAsync(new KvScan { Timeout = TimeSpan.FromMilliseconds(timeMs) }).GetAsyncEnumerator();
        cluster.Nodes[0].Scans = Mood.Deaf;
        var read = scan.MoveNextAsync().AsTask();
        Pass(clock, timeMs - LateMsMax);
        links.Break(cluster.Nodes[0], "the stream was broken by the test");
        Assert.False(read.IsCompleted);
        Pass(clock, 2 * LateMsMax);
        Assert.True(read.IsFaulted);
        Assert.IsType<KvUnavailableException>(read.Exception!.InnerException);
        client.Dispose();
    });

    /// <summary>A change that waited while another one opened the session of both was given up by the machine's clock.</summary>
    [Fact]
    public void Change_ThatWaitsForTheSessionThatAnotherOneOpens_EndsInTime() => Alone(() =>
    {
        const int timeMs = 20_000;
        var (clock, cluster, _, client) = Quiet();
        cluster.Nodes[0].Calls = Mood.Deaf;
        var opening = client.PutAsync("a", "1", new KvPutOptions { Timeout = TimeSpan.FromMilliseconds(10 * timeMs) }).AsTask();
        var waiting = client.PutAsync("a", "2", new KvPutOptions { Timeout = TimeSpan.FromMilliseconds(timeMs) }).AsTask();
        using var givesUp = new CancellationTokenSource();
        var givenUp = client.PutAsync("a", "3", new KvPutOptions { Timeout = TimeSpan.FromMilliseconds(10 * timeMs) }, givesUp.Token).AsTask();
        Pass(clock, timeMs - 1);
        Assert.False(waiting.IsCompleted || givenUp.IsCompleted);
        givesUp.Cancel();
        Assert.True(givenUp.IsCanceled);
        Pass(clock, LateMsMax);
        Assert.True(waiting.IsFaulted);
        Assert.Equal("DEADLINE_PASSED", Assert.IsType<KvUnavailableException>(waiting.Exception!.InnerException).Reason);
        // The next one has its turn when the first one has failed, which ends with the client.
        Assert.False(opening.IsCompleted);
        client.Dispose();
        Pass(clock, LateMsMax);
        Assert.True(opening.IsFaulted);
    });

    /// <summary>
    /// A connection looks at deadlines every tenth of a second. An attempt that failed after its call's deadline, but before that, was followed by a pause of
    /// as long again before the call ended.
    /// </summary>
    [Fact]
    public void Call_WhoseAttemptFailsAfterItsDeadline_EndsAtOnce() => Alone(() =>
    {
        const int timeMs = 3_000;
        const int pauseMsMax = 100;
        var (clock, cluster, links, client) = Quiet();
        // Its attempts are refused until the pauses between them are at their longest. The last one is not answered.
        cluster.Model.Lead(1, 0);
        var read = client.GetAsync("a", new KvGetOptions { Timeout = TimeSpan.FromMilliseconds(timeMs) }).AsTask();
        Pass(clock, timeMs - (2 * pauseMsMax));
        cluster.Nodes[0].Calls = Mood.Deaf;
        Pass(clock, 2 * pauseMsMax);
        links.Break(cluster.Nodes[0], "the connection was broken by the test");
        Assert.True(read.IsFaulted);
        Assert.IsType<KvUnavailableException>(read.Exception!.InnerException);
        client.Dispose();
    });

    private static (HostileClock Clock, HostileCluster Cluster, HostileLinks Links, KvClient Client) Quiet()
    {
        var random = new Random(1);
        var clock = new HostileClock(random);
        var cluster = new HostileCluster(clock, random, isRouted: false, mayDivide: false);
        var links = cluster.Link();
        var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Nodes[0].Address] }, links, clock.Runtime);
        // It has the map.
        Pass(clock, LateMsMax);
        return (clock, cluster, links, client);
    }

    private static void Pass(HostileClock clock, int timeMs)
    {
        for (var passedMs = 0; passedMs < timeMs; passedMs++)
            clock.Pass();
    }

    // On a thread without the context of a test, with which whatever waited would go on elsewhere.
    private static void Alone(Action run)
    {
        ExceptionDispatchInfo? failure = null;
        var thread = new Thread(() =>
        {
            try
            {
                run();
            }
            catch (Exception thrown)
            {
                failure = ExceptionDispatchInfo.Capture(thrown);
            }
        });
        thread.Start();
        thread.Join();
        failure?.Throw();
    }
}
