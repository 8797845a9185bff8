using KvCluster.Node.Coordination;
using KvCluster.Replication.Protocol;

namespace KvCluster.Tests.Node;

/// <summary>What every coordinator must do. The test class of each coordinator runs it.</summary>
internal static class CoordinatorContract
{
    public static async Task CheckAsync(ICoordinator coordinator)
    {
        using var limit = new CancellationTokenSource(Eventually.Limit);
        await CompareAndSetWinsOnlyAtTheExpectedRevisionAsync(coordinator, limit.Token);
        await GuardedCompareAndSetChangesNothingOnceTheGuardIsBrokenAsync(coordinator, limit.Token);
        await GuardOfAPrefixHoldsUntilAKeyIsPutUnderItAsync(coordinator, limit.Token);
        await ListGivesAPrefixInOrderAtOneRevisionAsync(coordinator, limit.Token);
        await WatchGivesEveryChangeFromARevisionOnAsync(coordinator, limit.Token);
        await RevokedLeaseTakesItsKeysAwayAsync(coordinator, limit.Token);
        await LeaseThatHasEndedIsNotKeptAliveAsync(coordinator, limit.Token);
    }

    private static async Task CompareAndSetWinsOnlyAtTheExpectedRevisionAsync(ICoordinator coordinator, CancellationToken token)
    {
        var created = await coordinator.CompareAndSetAsync("/a/one", 0, "1", 0, token);
        Assert.Equal(SetOutcome.Won, created.Outcome);
        Assert.Equal(SetOutcome.Lost, (await coordinator.CompareAndSetAsync("/a/one", 0, "again", 0, token)).Outcome);
        var read = await coordinator.GetAsync("/a/one", token);
        Assert.Equal(("1", created.Revision), (read.Value, read.ModRevision));

        var changed = await coordinator.CompareAndSetAsync("/a/one", created.Revision, "2", 0, token);
        Assert.Equal(SetOutcome.Won, changed.Outcome);
        Assert.True(changed.Revision > created.Revision);
        Assert.Equal(SetOutcome.Lost, (await coordinator.CompareAndSetAsync("/a/one", created.Revision, "late", 0, token)).Outcome);

        Assert.Equal(SetOutcome.Won, (await coordinator.CompareAndSetAsync("/a/one", changed.Revision, null, 0, token)).Outcome);
        read = await coordinator.GetAsync("/a/one", token);
        Assert.Equal((null, 0), (read.Value, read.ModRevision));
    }

    private static async Task GuardedCompareAndSetChangesNothingOnceTheGuardIsBrokenAsync(ICoordinator coordinator, CancellationToken token)
    {
        var guard = new CoordinatorGuard("/g/cluster", "first", default);
        await Assert.ThrowsAsync<CoordinatorGuardException>(() => coordinator.CompareAndSetAsync("/g/one", 0, "1", 0, guard, token));
        var first = await coordinator.CompareAndSetAsync("/g/cluster", 0, "first", 0, token);
        Assert.Equal(SetOutcome.Won, (await coordinator.CompareAndSetAsync("/g/one", 0, "1", 0, guard, token)).Outcome);
        Assert.Equal(SetOutcome.Lost, (await coordinator.CompareAndSetAsync("/g/one", 0, "again", 0, guard, token)).Outcome);
        await coordinator.CompareAndSetAsync("/g/cluster", first.Revision, "second", 0, token);
        var one = await coordinator.GetAsync("/g/one", token);
        await Assert.ThrowsAsync<CoordinatorGuardException>(() => coordinator.CompareAndSetAsync("/g/one", one.ModRevision, "2", 0, guard, token));
        Assert.Equal("1", (await coordinator.GetAsync("/g/one", token)).Value);
    }

    private static async Task GuardOfAPrefixHoldsUntilAKeyIsPutUnderItAsync(ICoordinator coordinator, CancellationToken token)
    {
        var listed = await coordinator.CompareAndSetAsync("/g/p/1", 0, "1", 0, token);
        var guard = CoordinatorGuard.OfPrefix("/g/p/", listed.Revision);
        var first = await coordinator.CompareAndSetAsync("/g/two", 0, "1", 0, guard, token);
        Assert.Equal(SetOutcome.Won, first.Outcome);
        Assert.Equal(SetOutcome.Lost, (await coordinator.CompareAndSetAsync("/g/two", 0, "again", 0, guard, token)).Outcome);
        await coordinator.CompareAndSetAsync("/g/p/1", listed.Revision, null, 0, token);
        var second = await coordinator.CompareAndSetAsync("/g/two", first.Revision, "2", 0, guard, token);
        Assert.Equal(SetOutcome.Won, second.Outcome);
        await coordinator.CompareAndSetAsync("/g/p/2", 0, "1", 0, token);
        await Assert.ThrowsAsync<CoordinatorGuardException>(() => coordinator.CompareAndSetAsync("/g/two", second.Revision, "3", 0, guard, token));
        Assert.Equal("2", (await coordinator.GetAsync("/g/two", token)).Value);
    }

    private static async Task ListGivesAPrefixInOrderAtOneRevisionAsync(ICoordinator coordinator, CancellationToken token)
    {
        foreach (var key in (string[])["/b/2", "/b/1", "/b0", "/b/1/x"])
            await coordinator.CompareAndSetAsync(key, 0, $"value of {key} with ünïcode", 0, token);
        var list = await coordinator.ListAsync("/b/", token);
        Assert.Equal(["/b/1", "/b/1/x", "/b/2"], list.Entries.Select(entry => entry.Key));
        Assert.Equal("value of /b/1 with ünïcode", list.Entries[0].Value);
        Assert.All(list.Entries, entry => Assert.InRange(entry.ModRevision, 1, list.Revision));
    }

    private static async Task WatchGivesEveryChangeFromARevisionOnAsync(ICoordinator coordinator, CancellationToken token)
    {
        var from = (await coordinator.ListAsync("/c/", token)).Revision + 1;
        var first = await coordinator.CompareAndSetAsync("/c/x", 0, "1", 0, token);
        await coordinator.CompareAndSetAsync("/other", 0, "unseen", 0, token);
        using var watching = CancellationTokenSource.CreateLinkedTokenSource(token);
        var seen = new List<CoordinatorChange>();
        var second = default(CompareAndSetResult);
        try
        {
            await foreach (var changes in coordinator.WatchAsync("/c/", from, watching.Token))
            {
                seen.AddRange(changes);
                if (seen.Count == 1)
                    second = await coordinator.CompareAndSetAsync("/c/x", first.Revision, "2", 0, token);
                if (seen.Count == 2)
                    await coordinator.CompareAndSetAsync("/c/x", second.Revision, null, 0, token);
                if (seen.Count == 3)
                    await watching.CancelAsync();
            }
        }
        catch (OperationCanceledException) when (watching.IsCancellationRequested && !token.IsCancellationRequested)
        {
            Assert.Equal(3, seen.Count);
        }
        Assert.Equal([("/c/x", "1"), ("/c/x", "2"), ("/c/x", null)], seen.Select(change => (change.Key, change.Value)));
        Assert.Equal([first.Revision, second.Revision], seen.Take(2).Select(change => change.ModRevision));
        Assert.True(seen[2].ModRevision > second.Revision);
    }

    private static async Task RevokedLeaseTakesItsKeysAwayAsync(ICoordinator coordinator, CancellationToken token)
    {
        var lease = await coordinator.GrantLeaseAsync(TimeSpan.FromSeconds(60), token);
        await coordinator.CompareAndSetAsync("/d/leased", 0, "1", lease, token);
        await coordinator.CompareAndSetAsync("/d/kept", 0, "1", 0, token);
        Assert.True(await coordinator.KeepAliveAsync(lease, token));
        await coordinator.RevokeAsync(lease, token);
        Assert.Equal(["/d/kept"], (await coordinator.ListAsync("/d/", token)).Entries.Select(entry => entry.Key));
        await coordinator.RevokeAsync(lease, token);
    }

    private static async Task LeaseThatHasEndedIsNotKeptAliveAsync(ICoordinator coordinator, CancellationToken token)
    {
        var lease = await coordinator.GrantLeaseAsync(TimeSpan.FromSeconds(60), token);
        await coordinator.RevokeAsync(lease, token);
        Assert.False(await coordinator.KeepAliveAsync(lease, token));
    }
}
