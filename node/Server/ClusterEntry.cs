using System.Security.Cryptography;
using Grpc.Net.Client;
using KvCluster.Internal.V1;
using KvCluster.Node.Configuration;
using KvCluster.Node.Coordination;
using KvCluster.Node.CoordinatorRecovery;
using KvCluster.Node.Hosting;
using KvCluster.Node.Runtime;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.ServiceDefaults.Logs;
using KvCluster.ServiceDefaults.Programs;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node;

/// <summary>
/// What a node asks before it opens its data: the coordinator for the cluster's record, whether it runs already, and whether its directory is its newest, and
/// the other nodes whether they have joined a later recovery. Waits for the coordinator's answers, and says why it waits. Used by <see cref="NodeHost"/> as it
/// starts, by one task.
/// </summary>
/// <param name="options">The node's options.</param>
/// <param name="coordinator">The coordinator.</param>
/// <param name="keys">The cluster's keys.</param>
/// <param name="health">Receives the progress of the start.</param>
/// <param name="log">Receives a line per minute for each reason to wait.</param>
internal sealed class ClusterEntry(NodeOptions options, ICoordinator coordinator, CoordinatorKeys keys, ProcessHealth health, ILogger log)
{
    /// <summary>
    /// Waits until the cluster's record exists, and creates the cluster if the options say so. Meanwhile the node says in the coordinator whether it has data.
    /// </summary>
    /// <param name="mayCreate">
    /// Whether the node's directory is new. One that belonged to a cluster waits for that cluster: if its record is lost, a newly created cluster would be a
    /// different one. Beside such a node none is created, and by <c>bootstrap-nodes</c> only once all of these are new.
    /// </param>
    /// <param name="known">The record that the directory goes by; null if it has none. A coordinator with an earlier recovery, or lower levels, is not
    /// followed.</param>
    /// <param name="askOthers">Asks which recovery the other nodes have joined. A coordinator with an earlier one is not followed. Called once, because no node
    /// leaves a recovery.</param>
    /// <param name="missing">Called each time the coordinator lacks the cluster to which the directory belongs, or has an earlier state of it.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>The record, and its value as it was read.</returns>
    /// <exception cref="DirectoryFormatException">This program does not support the cluster's levels.</exception>
    public async Task<(ClusterRecord Record, string Text)> WaitForClusterAsync(
        bool mayCreate, ClusterRecord? known, Func<Task<JoinedElsewhere?>> askOthers, Func<Task> missing, CancellationToken cancellationToken)
    {
        (ClusterRecord Record, string Text)? found = null;
        Task<JoinedElsewhere?>? others = null;
        var alarms = new OncePerReason();
        var notice = new WaitingNotice(keys, options.Node, mayCreate ? WaitingNodes.Empty : known?.ClusterId ?? "unknown", BootClock.Instance);
        await AskUntilAnsweredAsync(async () =>
        {
            CoordinatorRead read;
            while ((read = await coordinator.GetAsync(keys.Cluster, cancellationToken).ConfigureAwait(false)).Value is null)
            {
                if (!mayCreate)
                {
                    await missing().ConfigureAwait(false);
                    if (alarms.MaySay(CoordinatorFollowing.Lost))
                        NodeLog.NotFollowed(log, CoordinatorFollowing.Lost);
                    await notice.KeepAsync(coordinator, cancellationToken).ConfigureAwait(false);
                    return "the coordinator has none, but this data directory belongs to a cluster. Is it the right coordinator? If its data is lost, rebuild "
                        + "it from the nodes, and start none with an empty data directory before: kv admin coordinator recover";
                }
                await notice.KeepAsync(coordinator, cancellationToken).ConfigureAwait(false);
                var waiting = await WaitingNodes.ReadAsync(coordinator, keys, cancellationToken).ConfigureAwait(false);
                if (waiting.WhyLost() is { } lost)
                    return lost;
                if (options.Bootstrap is not { } created)
                    return "it has not been initialized yet (kv-node init, or bootstrap-nodes)";
                if (waiting.WhyIncomplete(created.Nodes) is { } incomplete)
                    return incomplete;
                if (await ClusterInit.TryCreateAsync(coordinator, options.Cluster, created, waiting, cancellationToken).ConfigureAwait(false) == true)
                    NodeLog.CreatedCluster(log, options.Cluster, created.SplitKeys.Count + 1, created.ReplicationFactor, created.Nodes.Count);
            }
            var record = CheckLevel(RecordText.Parse<ClusterRecord>(read.Value));
            if (record.ClusterId == known?.ClusterId
                && (CoordinatorFollowing.WhyOlder(record, known) ?? (await (others ??= askOthers()).ConfigureAwait(false))?.WhyOlder(record)) is { } older)
            {
                await missing().ConfigureAwait(false);
                if (alarms.MaySay(older))
                    NodeLog.NotFollowed(log, older);
                return $"the coordinator is not followed, because {older}. Is it the one that the other nodes use? If so, raise its records to what the nodes "
                    + "know: kv admin coordinator recover";
            }
            found = (record, read.Value);
            return null;
        }, "the record", cancellationToken).ConfigureAwait(false);
        await notice.WithdrawAsync(coordinator).ConfigureAwait(false);
        return found!.Value;
    }

    /// <summary>
    /// Makes sure that no other process runs as this node. To be called before its start is counted, because that would make the directory of the running
    /// process an old one.
    /// </summary>
    /// <param name="channelTo">Creates a connection to a node at an address.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="NodeRunsAlreadyException">Another process answers as this node.</exception>
    public Task RefuseToRunTwiceAsync(Func<NodeId, string, GrpcChannel> channelTo, CancellationToken cancellationToken) => AskUntilAnsweredAsync(async () =>
    {
        var running = await DuplicateNodeProbe.FindAsync(coordinator, keys.Node(options.Node), channelTo, cancellationToken).ConfigureAwait(false);
        if (running is not null)
            throw new NodeRunsAlreadyException(options.Node, running, options.DataDirectory);
        return null;
    }, "its registration", cancellationToken);

    /// <summary>Counts a start of the node with a directory, after <see cref="RefuseToRunTwiceAsync"/>.</summary>
    /// <param name="directory">The node's directory.</param>
    /// <param name="channelTo">Creates a connection to a node at an address.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>
    /// The incarnation of this process. It increases with every start of the directory. Its lower half is random and distinguishes copies of a directory.
    /// </returns>
    /// <exception cref="StaleDirectoryException">The directory is not the node's newest, and the node must not continue without that one.</exception>
    public async Task<ulong> CountStartAsync(NodeDirectory directory, Func<NodeId, string, GrpcChannel> channelTo, CancellationToken cancellationToken)
    {
        var oldCopy = new StartWithOldCopy(options.Node, coordinator, keys, channelTo, options.OldCopyWaitMax, log);
        var process = BitConverter.ToUInt32(RandomNumberGenerator.GetBytes(sizeof(uint)));
        await AskUntilAnsweredAsync(
            async () => await TryCountAsync(directory, oldCopy, process, cancellationToken).ConfigureAwait(false), "its count of starts",
            cancellationToken).ConfigureAwait(false);
        return directory.Starts.Put.Incarnation;
    }

    // Repeats a request without which the node cannot start, and logs why it waits, each reason once a minute. A permanent refusal ends the start.
    private async Task AskUntilAnsweredAsync(Func<Task<string?>> ask, string what, CancellationToken cancellationToken)
    {
        var reasons = new OncePerMinute(BootClock.Instance);
        while (true)
        {
            string reason;
            try
            {
                if (await ask().ConfigureAwait(false) is not { } missing)
                    return;
                reason = missing;
            }
            catch (CoordinatorUnavailableException failure) when (failure is not CoordinatorDeniedException)
            {
                reason = failure.Message;
            }
            if (reasons.MaySay(reason))
                NodeLog.WaitsForCluster(log, what, options.Cluster, reason);
            health.Waits($"it is waiting for {what} of cluster {options.Cluster}: {reason}");
            await Task.Delay(TimeSpan.FromMilliseconds(200), cancellationToken).ConfigureAwait(false);
        }
    }

    private ClusterRecord CheckLevel(ClusterRecord record)
    {
        if (options.Levels.WhyNot(record.FormatLevel, record.ContractLevel) is { } reason)
            throw new DirectoryFormatException(options.DataDirectory, $"{reason} by this program (version {ProgramVersion.Full}); nothing was changed. "
                + "Start the node with a version that supports it");
        return Lineage.Read(record.Lineage) != Lineage.None
            ? record
            : throw new DirectoryFormatException(options.DataDirectory, $"the record of cluster {options.Cluster} has no lineage, so it was not written by a "
                + "version that can be upgraded; nothing was changed. Create a new cluster");
    }

    // The directory notes the start first, so that the coordinator has counted none that the directory does not know, unless it was not started last. An old
    // copy notes none before all its contents are set aside, so that it stays an old copy until then.
    private async Task<string?> TryCountAsync(NodeDirectory directory, StartWithOldCopy oldCopy, uint process, CancellationToken cancellationToken)
    {
        var key = keys.Starts(options.Node);
        var read = await coordinator.GetAsync(key, cancellationToken).ConfigureAwait(false);
        var counted = read.Value is null ? new NodeStarts() : RecordText.Parse<NodeStarts>(read.Value);
        var before = directory.Starts;
        if (before.IsOldCopy(counted) && await oldCopy.TryAsync(directory, counted, cancellationToken).ConfigureAwait(false) is { } reason)
            return reason;
        directory.CountStart(before.Next(counted, process));
        var set = await coordinator.SetUntilSettledAsync(key, read.ModRevision, RecordText.Format(directory.Starts.Put), 0, cancellationToken)
            .ConfigureAwait(false);
        if (set.Outcome == SetOutcome.Won)
            return null;
        directory.CountStart(before);
        throw new StaleDirectoryException(options.DataDirectory, $"node {options.Node} was started elsewhere at the same time, with another copy of it; "
            + "nothing was changed here. Only one copy can be the node's: stop the other process, or leave this one stopped");
    }
}
