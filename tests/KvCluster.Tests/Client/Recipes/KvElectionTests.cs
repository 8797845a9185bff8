using KvCluster.Client;
using KvCluster.Tests.Node;

namespace KvCluster.Tests.Client.Recipes;

/// <summary>Elections: one candidate leads at a time, another one after it, and others see who.</summary>
public sealed class KvElectionTests
{
    /// <summary>Each leader is replaced after three changes, because its session ends, and the leader of the shard stops meanwhile.</summary>
    [Fact]
    public async Task Leaders_ThatLoseTheirSessions_FollowOneAnother_AndNoneChangesWhatALaterOneHas()
    {
        const int changes = 12;
        await using var cluster = await NodeCluster.StartAsync(3);
        var leader = await cluster.LeaderOfAsync(0);
        await using var client = new KvClient(
            new KvClientOptions { Endpoints = [cluster.AddressOf(1), cluster.AddressOf(2), cluster.AddressOf(3)], Timeout = Eventually.Limit });
        var made = 0;
        var election = new KvElection(client, "leader", TimeSpan.FromSeconds(2));
        var running = Task.WhenAll(new[] { "a", "b", "c" }.Select(candidate => election.RunAsync(candidate, LeadAsync)));
        await Eventually.TrueAsync(() => Volatile.Read(ref made) > 0 || running.IsCompleted, "changes are made");
        await cluster.StopNodeAsync(leader);
        await running;
        Assert.Equal((changes, (long)changes), (made, (await client.GetAsync("count")).Value.ToInt64()));
        Assert.Null(await election.FindLeaderAsync());

        async Task LeadAsync(KvLock leadership, CancellationToken leading)
        {
            for (var change = 0; change < 3; change++)
            {
                var read = await client.GetAsync("count");
                var count = read.Found ? read.Value.ToInt64() : 0;
                if (count == changes)
                    return;
                await client.WriteAsync(new KvWrite().If(leadership.Held).Put("count", KvValue.FromInt64(count + 1)));
                Interlocked.Increment(ref made);
            }
            await client.Sessions.EndAsync(leadership.Session.Session);
            await Task.Delay(Timeout.Infinite, leading);
        }
    }

    [Fact]
    public async Task Observers_SeeWhoLeads_AndWhenNobodyDoes()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var election = new KvElection(client, "leader", TimeSpan.FromHours(1));
        using var ended = new CancellationTokenSource();
        await using var leaders = election.WatchLeaderAsync(ended.Token).GetAsyncEnumerator();
        Assert.Null(await NextAsync(leaders));
        Assert.Null(await election.FindLeaderAsync());
        KvLeader first;
        await using (var leadership = await election.CampaignAsync("first"))
        {
            first = new KvLeader("first", leadership.FencingEtag);
            Assert.Equal(first, await NextAsync(leaders));
            Assert.Equal(first, await election.FindLeaderAsync());
        }
        Assert.Null(await NextAsync(leaders));
        await using (await election.CampaignAsync("second"))
        {
            var second = await NextAsync(leaders);
            Assert.Equal("second", second?.Candidate.ToUtf8String());
            Assert.True(second?.FencingEtag > first.FencingEtag);
        }
        await ended.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(async () =>
        {
            while (await leaders.MoveNextAsync())
                Assert.Null(leaders.Current);
        });
    }

    [Fact]
    public async Task Run_ThatIsEnded_GivesUpTheLeadership()
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.AddressOf(1)], Timeout = Eventually.Limit });
        var election = new KvElection(client, "leader", TimeSpan.FromHours(1));
        using var ended = new CancellationTokenSource();
        var leads = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var running = election.RunAsync(
            "a",
            async (_, leading) =>
            {
                leads.SetResult();
                await Task.Delay(Timeout.Infinite, leading);
            },
            ended.Token);
        await leads.Task;
        Assert.Equal("a", (await election.FindLeaderAsync())?.Candidate.ToUtf8String());
        await ended.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => running);
        Assert.Null(await election.FindLeaderAsync());
        // Without a loss, the end of the function is the end of the leadership, and so is its failure.
        await election.RunAsync("b", static (_, _) => Task.CompletedTask);
        await Assert.ThrowsAsync<InvalidOperationException>(() => election.RunAsync("c", static (_, _) => throw new InvalidOperationException()));
        Assert.Null(await election.FindLeaderAsync());
    }

    private static async Task<KvLeader?> NextAsync(IAsyncEnumerator<KvLeader?> leaders)
    {
        Assert.True(await leaders.MoveNextAsync().AsTask().WaitAsync(Eventually.Limit));
        return leaders.Current;
    }
}
