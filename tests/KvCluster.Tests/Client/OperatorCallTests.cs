using KvCluster.Client;

namespace KvCluster.Tests.Client;

/// <summary>Changing calls of operators: what their callers are told when the answer is lost.</summary>
public sealed class OperatorCallTests
{
    private static readonly string[] Changes = ["transfer", "drain", "replace", "quarantine", "place", "raise"];

    public static TheoryData<string, bool> Calls()
    {
        var calls = new TheoryData<string, bool>();
        foreach (var name in Changes)
        {
            calls.Add(name, false);
            calls.Add(name, true);
        }
        return calls;
    }

    /// <summary>An operator was told that nothing was applied, although the transfer was done: the connection had broken before the answer.</summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Change_AnswerLost_HasAnUnknownOutcome(bool gateway)
    {
        // All at once, because each waits for most of a second.
        var failures = await Task.WhenAll(
            Changes.Select(async name => (Name: name, Failure: await Record.ExceptionAsync(() => LoseAnswerAsync(name, gateway)))));
        Assert.All(failures, static one => Assert.True(one.Failure is null, $"{one.Name}: {one.Failure}"));
    }

    /// <summary>The first attempt may have succeeded. If a later one is refused or reaches nobody, that does not change it.</summary>
    [Fact]
    public async Task Transfer_NodeGoneAfterALostAnswer_KeepsItsUnknownOutcome()
    {
        await Eventually.LongEnoughAsync(TimeSpan.FromSeconds(2), async time =>
        {
            await using var cluster = await FakeCluster.StartAsync(1);
            var node = cluster.Nodes[0];
            node.AdminScript = () =>
            {
                _ = node.DisposeAsync().AsTask();
                return Task.Delay(Timeout.InfiniteTimeSpan);
            };
            await using var client = ClientOf(cluster, gateway: false, time);
            var failure = await Assert.ThrowsAnyAsync<KvException>(() => client.Admin.TransferAsync(1));
            if (node.AdminCallsSeen == 0)
                return false;
            Assert.IsType<KvOutcomeUnknownException>(failure);
            return true;
        });
    }

    /// <summary>The first node got the whole time of the call, so one that stood still blocked every upgrade of the chart.</summary>
    [Fact]
    [Trait("Turn", "3")]
    public async Task Place_WhileNodesStandStill_IsDoneByAnother()
    {
        await using var cluster = await FakeCluster.StartAsync(3);
        foreach (var node in cluster.Nodes.Take(2))
            node.AdminScript = static () => Task.Delay(Timeout.InfiniteTimeSpan);
        await using var client = ClientOf(cluster, gateway: false, Eventually.Limit);
        await client.Admin.PlaceAsync(paused: true);
        // More than once if this one stood still for two seconds as well.
        Assert.NotEqual(0, cluster.Nodes[2].AdminCallsSeen);
    }

    /// <summary>Nobody was asked, so no attempt failed, and the call never ended.</summary>
    [Theory]
    [InlineData("place")]
    [InlineData("raise")]
    public async Task Change_MapWithoutNodes_EndsAtItsTimeout(string name)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        cluster.NamesNodes = false;
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(400), async time =>
        {
            await using var client = ClientOf(cluster, gateway: false, time);
            var failure = await Assert.ThrowsAsync<KvUnavailableException>(() => CallAsync(client, name, CancellationToken.None).WaitAsync(Eventually.Limit));
            // A time that was too short for the map.
            if (!failure.Message.Contains("names no node", StringComparison.Ordinal))
                return false;
            Assert.Equal(("NODE_UNREACHABLE", ChangeOutcome.NotApplied), (failure.Reason, failure.Outcome));
            return true;
        });
        Assert.Equal(0, cluster.Nodes[0].AdminCallsSeen);
    }

    [Theory]
    [MemberData(nameof(Calls))]
    [Trait("Turn", "3")]
    public async Task Change_CallerStopsWaiting_IsCancelled(string name, bool gateway)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        using var stopped = new CancellationTokenSource();
        cluster.Nodes[0].AdminScript = async () =>
        {
            await stopped.CancelAsync();
            await Task.Delay(Timeout.InfiniteTimeSpan);
        };
        await using var client = ClientOf(cluster, gateway, Eventually.Limit);
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => CallAsync(client, name, stopped.Token));
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Reads_CallerStopsWaiting_AreCancelled(bool gateway)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var client = ClientOf(cluster, gateway, Eventually.Limit);
        await client.PutAsync("a", "1");
        using var stopped = new CancellationTokenSource();
        cluster.Nodes[0].ScanScript = _ => stopped.Cancel();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(async () =>
        {
            await foreach (var _ in client.ScanAsync(new KvScan(), stopped.Token))
            {
            }
            stopped.Token.ThrowIfCancellationRequested();
        });
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => client.CountAsync(default, cancellationToken: stopped.Token));
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => client.Admin.GetStatusAsync(cancellationToken: stopped.Token));
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => client.Admin.CheckpointAsync(stopped.Token));
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => client.GetAsync("a", cancellationToken: stopped.Token).AsTask());
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => client.PutAsync("a", "2", cancellationToken: stopped.Token).AsTask());
    }

    [Fact]
    public async Task Drain_OfAnUnreachableNode_WasNotApplied()
    {
        await using var cluster = await FakeCluster.StartAsync(2);
        await using var client = ClientOf(cluster, gateway: false, Eventually.Limit);
        // The client has the map, but no connection to the second node.
        await client.PutAsync("a", "1");
        await cluster.Nodes[1].DisposeAsync();
        var failure = await Assert.ThrowsAsync<KvUnavailableException>(() => client.Admin.DrainAsync(2));
        Assert.Equal(("NODE_UNREACHABLE", ChangeOutcome.NotApplied), (failure.Reason, failure.Outcome));
    }

    private static async Task LoseAnswerAsync(string name, bool gateway)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var node = cluster.Nodes[0];
        node.AdminScript = () =>
        {
            node.Abort();
            return Task.Delay(Timeout.InfiniteTimeSpan);
        };
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(150), async time =>
        {
            var before = node.AdminCallsSeen;
            await using var client = ClientOf(cluster, gateway, time);
            var failure = await Assert.ThrowsAnyAsync<KvException>(() => CallAsync(client, name, CancellationToken.None));
            if (node.AdminCallsSeen == before)
                return false;
            Assert.IsType<KvOutcomeUnknownException>(failure);
            Assert.Equal((ChangeOutcome.Unknown, false), (failure.Outcome, failure.Message.Contains("othing was", StringComparison.Ordinal)));
            Assert.Contains(gateway ? "the router at http" : "node 1", failure.Message, StringComparison.Ordinal);
            return true;
        });
    }

    private static KvClient ClientOf(FakeCluster cluster, bool gateway, TimeSpan time) =>
        new(new KvClientOptions { Endpoints = [cluster.Endpoint], Gateway = gateway, Timeout = time });

    private static Task CallAsync(KvClient client, string name, CancellationToken stop) => name switch
    {
        "transfer" => client.Admin.TransferAsync(1, 0, stop),
        "drain" => client.Admin.DrainAsync(1, cancellationToken: stop),
        "replace" => client.Admin.ReplaceAsync(1, 1, 1, cancellationToken: stop),
        "quarantine" => client.Admin.QuarantineAsync(1, 1, "a test", cancellationToken: stop),
        "raise" => client.Admin.RaiseLevelsAsync(stop),
        _ => client.Admin.PlaceAsync(paused: true, cancellationToken: stop),
    };
}
