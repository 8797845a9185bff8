using Grpc.Core;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Etcd;
using KvCluster.Replication.Protocol;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

/// <summary>
/// A change is sent to one member, once, whatever becomes of it. The package that has etcd's calls also has a client with retries, which would send it again
/// after it may have been applied.
/// </summary>
public sealed class EtcdSentOnceTests
{
    private static readonly CancellationToken Never = CancellationToken.None;

    [Fact]
    public async Task CompareAndSet_ThatIsAnswered_IsReceivedOnce()
    {
        await using var first = await CountingEtcd.StartAsync();
        await using var second = await CountingEtcd.StartAsync();
        await using var coordinator = Connect(first, second);
        for (var change = 1; change <= 20; change++)
        {
            Assert.Equal(SetOutcome.Won, (await coordinator.CompareAndSetAsync($"/{change}", 0, "1", 0, Never)).Outcome);
            Assert.Equal((change, 0), (first.Changes, second.Changes));
        }
        Assert.Equal(SetOutcome.Lost, (await coordinator.CompareAndSetAsync("/1", 0, "2", 0, Never)).Outcome);
        Assert.Equal((21, 0), (first.Changes, second.Changes));
    }

    [Fact]
    public async Task CompareAndSet_WhoseConnectionBreaksWhenItWasApplied_IsUnknownAndNotSentAgain()
    {
        await using var first = await CountingEtcd.StartAsync();
        await using var second = await CountingEtcd.StartAsync();
        await using (var coordinator = Connect(first, second))
        {
            // Over a connection that has been in use, as most are when they break.
            await coordinator.GetAsync("/k", Never);
            first.BreaksConnections = true;
            Assert.Equal(SetOutcome.Unknown, (await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never)).Outcome);
            Assert.Equal("1", (await first.Coordinator.GetAsync("/k", Never)).Value);
        }
        Assert.Equal((1, 0), (first.Changes, second.Changes));
    }

    /// <summary>With the first of these statuses the package's own client sends a request up to five times.</summary>
    [Theory]
    [InlineData(StatusCode.Unavailable)]
    [InlineData(StatusCode.Aborted)]
    [InlineData(StatusCode.DeadlineExceeded)]
    [InlineData(StatusCode.Internal)]
    [InlineData(StatusCode.Unknown)]
    public async Task CompareAndSet_ThatFails_IsUnknownAndNotSentAgain(StatusCode status)
    {
        await using var first = await CountingEtcd.StartAsync();
        await using var second = await CountingEtcd.StartAsync();
        first.Refusal = new Status(status, "etcdserver: request timed out");
        await using (var coordinator = Connect(first, second))
            Assert.Equal(SetOutcome.Unknown, (await coordinator.CompareAndSetAsync("/k", 0, "1", 0, Never)).Outcome);
        Assert.Equal((1, 0), (first.Changes, second.Changes));
    }

    /// <summary>Otherwise the other tests say nothing about the package.</summary>
    [Fact]
    public void Calls_AreThoseOfThePackage() =>
        Assert.All(
            [nameof(EtcdEndpoint.Kv), nameof(EtcdEndpoint.Watch), nameof(EtcdEndpoint.Lease), nameof(EtcdEndpoint.Auth), nameof(EtcdEndpoint.Maintenance)],
            static calls => Assert.Equal("dotnet-etcd", typeof(EtcdEndpoint).GetProperty(calls)!.PropertyType.Assembly.GetName().Name));

    /// <summary>The package's own client retries, hides compactions and unknown leases, and makes channels that cannot reload certificates.</summary>
    [Fact]
    public void Sources_UseOnlyTheGeneratedPartOfThePackage() =>
        Assert.DoesNotContain(
            House.House.TextFiles()
                .Where(static path => path.EndsWith(".cs", StringComparison.Ordinal) && !path.StartsWith("tests/", StringComparison.Ordinal)),
            static path => House.House.Read(path).Contains("dotnet_etcd", StringComparison.Ordinal));

    private static EtcdCoordinator Connect(params CountingEtcd[] members) =>
        new(new EtcdOptions { Endpoints = [.. members.Select(static member => member.Address)], RequestTime = Eventually.Limit }, NullLogger.Instance);
}
