using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Coordination.Embedded;
using KvCluster.Node.Hosting;
using KvCluster.Node.Runtime;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Node;

public sealed class NodeRegistrationTests : IDisposable
{
    private static readonly CoordinatorKeys Keys = new("local");
    private static readonly NodeIdentity Identity = new("local", "id", new NodeId(1), 1, "http://127.0.0.1:1");

    private readonly TemporaryDirectory _directory = new();

    public void Dispose() => _directory.Dispose();

    /// <summary>
    /// A node says that it drains when it stops, and stopping ends the call. The record of a process that is gone would remain until its lease had expired.
    /// </summary>
    [Fact]
    public async Task Dispose_WhileAChangeHasArrivedWithoutItsAnswer_RemovesTheRecord()
    {
        await using var coordinator = EmbeddedCoordinator.Open(_directory.Path, TimeProvider.System);
        await using var silent = new SilentCoordinator(coordinator);
        await using (var registration = new NodeRegistration(silent, Keys, Identity, NullLogger.Instance))
        {
            await Eventually.TrueAsync(async () => await RecordAsync(coordinator) is { Draining: false }, "the node is registered");
            silent.IsSilent = true;
            registration.SetDraining(true);
            await Eventually.TrueAsync(async () => await RecordAsync(coordinator) is { Draining: true }, "the node says that it drains");
        }
        Assert.Null(await RecordAsync(coordinator));
    }

    [Fact]
    public async Task Record_WhoseLeaseHasEnded_IsPutAgain()
    {
        await using var coordinator = EmbeddedCoordinator.Open(_directory.Path, TimeProvider.System);
        await using var watched = new SilentCoordinator(coordinator);
        await using var registration = new NodeRegistration(watched, Keys, Identity, NullLogger.Instance);
        await Eventually.TrueAsync(async () => await RecordAsync(coordinator) is not null, "the node is registered");
        await coordinator.RevokeAsync(watched.Lease, CancellationToken.None);
        await Eventually.TrueAsync(async () => await RecordAsync(coordinator) is not null, "the node is registered again");
    }

    private static async Task<NodeRecord?> RecordAsync(ICoordinator coordinator) =>
        (await coordinator.GetAsync(Keys.Node(Identity.Node), CancellationToken.None)).Value is { } text ? RecordText.Parse<NodeRecord>(text) : null;

    /// <summary>Applies changes and, once it is silent, does not answer that it has.</summary>
    private sealed class SilentCoordinator(ICoordinator inner) : PassingCoordinator(inner)
    {
        private long _lease;

        public volatile bool IsSilent;

        /// <summary>The lease granted last.</summary>
        public long Lease => Volatile.Read(ref _lease);

        public override async Task<long> GrantLeaseAsync(TimeSpan timeToLive, CancellationToken cancellationToken)
        {
            var lease = await base.GrantLeaseAsync(timeToLive, cancellationToken);
            Volatile.Write(ref _lease, lease);
            return lease;
        }

        public override async Task<CompareAndSetResult> CompareAndSetAsync(
            string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken)
        {
            var result = await base.CompareAndSetAsync(key, expectedRevision, value, lease, guardedBy, cancellationToken);
            if (IsSilent)
                await Task.Delay(Timeout.Infinite, cancellationToken);
            return result;
        }
    }
}
