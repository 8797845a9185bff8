// Which state of the coordinator this node goes by: the one whose cluster record has the greatest number of recoveries that it has seen
// (node/Server/CoordinatorRecovery/README.md). A loop on the thread pool looks at that record, also while the coordinator is another store than before and
// everything else about it raises the alarm. Within a recovery the record changes only when the levels in force are raised.
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Runtime;
using KvCluster.ServiceDefaults.Logs;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.Storage.Files;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>Keeps the guard of a node's changes at the coordinator, and joins a recovery once it is complete.</summary>
internal sealed partial class CoordinatorFollowing : IAsyncDisposable
{
    /// <summary>Why a coordinator without the cluster's record is not followed.</summary>
    public const string Lost = "it has no record of the cluster, so its data is lost";

    /// <summary>
    /// A recovery is joined soon after it is complete, and one read in this time costs an idle node and the coordinator little. The node's lease is kept alive
    /// at the same moments, and so is the placement's.
    /// </summary>
    private static readonly TimeSpan Interval = TimeSpan.FromSeconds(3);

    private readonly ICoordinator _coordinator;
    private readonly string _key;
    private readonly NodeIdentity _identity;
    private readonly KnownRecords _known;
    private readonly WaitingNotice _notice;
    private readonly ILogger _log;
    private readonly OncePerReason _refusals = new();
    private readonly SemaphoreSlim _turn = new(1);
    private readonly BackgroundLoop _loop;
    private volatile CoordinatorGuard _guard;
    private volatile string? _refusal;

    /// <param name="coordinator">The coordinator, not guarded.</param>
    /// <param name="keys">The cluster's keys.</param>
    /// <param name="identity">This node.</param>
    /// <param name="known">Has the cluster's record that this node goes by.</param>
    /// <param name="cluster">The value of that record, as it was read.</param>
    /// <param name="log">Receives a line when a recovery is joined, and why another state of the coordinator is refused.</param>
    public CoordinatorFollowing(ICoordinator coordinator, CoordinatorKeys keys, NodeIdentity identity, KnownRecords known, string cluster, ILogger log)
    {
        (_coordinator, _key, _identity, _known, _log) = (coordinator, keys.Cluster, identity, known, log);
        _guard = new CoordinatorGuard(_key, cluster, known.Recovery);
        _notice = new WaitingNotice(keys, identity.Node, identity.ClusterId, BootClock.Instance);
        _loop = new BackgroundLoop(
            "the look at the coordinator's cluster record", LookAsync, static () => CommonMoments.Until(Interval), TimeProvider.System, log);
    }

    /// <summary>What every change of this node at the coordinator compares. Any thread.</summary>
    public CoordinatorGuard Guard => _guard;

    /// <summary>Why the coordinator is not followed, by its last answer; null if it is. Any thread.</summary>
    public string? Refusal => _refusal;

    /// <summary>Called after each look by which the coordinator is followed. Must not wait.</summary>
    public Action Followed
    {
        get => Volatile.Read(ref field);
        set => Volatile.Write(ref field, value);
    } = static () => { };

    /// <summary>Called after a recovery was joined, in which this node's registration may be missing. Must not wait.</summary>
    public Action Joined
    {
        get => Volatile.Read(ref field);
        set => Volatile.Write(ref field, value);
    } = static () => { };

    /// <summary>Looks at the record at once, because a change was refused for its guard. Any thread.</summary>
    /// <returns>The guard now in force if it is another one of the same recovery; otherwise null.</returns>
    public async Task<CoordinatorGuard?> RenewAsync(CoordinatorGuard broken, CancellationToken cancellationToken)
    {
        if (_guard.Value == broken.Value)
            await LookAsync(cancellationToken).ConfigureAwait(false);
        var guard = _guard;
        return guard.Value != broken.Value && guard.Recovery == broken.Recovery ? guard : null;
    }

    public ValueTask DisposeAsync() => _loop.DisposeAsync();

    /// <summary>Why a state of the coordinator is not followed; null if it is.</summary>
    /// <param name="text">The value of the cluster's record there; null if there is none.</param>
    /// <param name="identity">This node.</param>
    /// <param name="known">The record that this node goes by.</param>
    /// <param name="isAnotherStore">Whether the coordinator is another store than before, or went backwards. Only a later recovery explains that.</param>
    internal static string? WhyNot(string? text, NodeIdentity identity, ClusterRecord known, bool isAnotherStore)
    {
        if (text is null)
            return Lost;
        var record = RecordText.Parse<ClusterRecord>(text);
        return record.ClusterId != identity.ClusterId || Lineage.Read(record.Lineage) != identity.Lineage
            ? $"it has another cluster, {record.ClusterId} of lineage {Lineage.Read(record.Lineage)}"
            : WhyOlder(record, known) is { } older ? older
            : isAnotherStore && record.Recovery == known.Recovery ? "it was restored or replaced, and its records were not rebuilt since"
            : identity.Levels.WhyNot(record.FormatLevel, record.ContractLevel) is { } lacking
            ? $"{lacking} by this program (version {ProgramVersion.Full}); start the node with a version that supports it"
            : null;
    }

    /// <summary>Why the coordinator has an earlier state of the cluster than one that a node has gone by; null if it does not.</summary>
    /// <param name="record">The cluster's record there.</param>
    /// <param name="known">The record that the node goes by, of the same cluster.</param>
    internal static string? WhyOlder(ClusterRecord record, ClusterRecord known) =>
        record.Recovery < known.Recovery ? $"its records are older, of recovery {record.Recovery}, and this node has joined recovery {known.Recovery}"
        : record.Recovery == known.Recovery && record.RecoveryId != known.RecoveryId
        ? $"its records were rebuilt by another recovery {record.Recovery} than those that this node goes by"
        : ClusterLevels.WhyOlder(record, known);

    private async Task LookAsync(CancellationToken cancellationToken)
    {
        // A look that read an older record must not end after one that read a newer one.
        await _turn.WaitAsync(cancellationToken).ConfigureAwait(false);
        try
        {
            try
            {
                if (Judge((await _coordinator.GetAsync(_key, cancellationToken).ConfigureAwait(false)).Value, isAnotherStore: false))
                    Followed();
                await SayWhetherLostAsync(_coordinator, cancellationToken).ConfigureAwait(false);
            }
            catch (CoordinatorAlarmException alarm)
            {
                // The reason is kept now, because the store that answers may be gone before the record is read.
                _refusal ??= alarm.Message;
                var anew = _coordinator.Anew();
                await using (anew.ConfigureAwait(false))
                {
                    if (Judge((await anew.GetAsync(_key, cancellationToken).ConfigureAwait(false)).Value, isAnotherStore: true))
                    {
                        _coordinator.ContinueAs(anew);
                        Followed();
                    }
                    await SayWhetherLostAsync(anew, cancellationToken).ConfigureAwait(false);
                }
            }
        }
        catch (CoordinatorUnavailableException)
        {
            // Nothing is known of its records. What is tried without an answer is logged elsewhere.
        }
        catch (CoordinatorRecordException failure)
        {
            Refuse(failure.Message);
        }
        catch (StorageIoException failure)
        {
            // This failure is one of the disk and not of the coordinator, whose record is judged again when the disk takes it.
            if (_refusals.MaySay(failure.Message))
                NotKept(_log, failure.Message);
        }
        finally
        {
            _turn.Release();
        }
    }

    // The one key that is put into a store without the cluster's record, so that nobody creates another cluster there.
    private Task SayWhetherLostAsync(ICoordinator store, CancellationToken cancellationToken) => _refusal switch
    {
        null => _notice.WithdrawAsync(store),
        Lost => _notice.KeepAsync(store, cancellationToken),
        _ => Task.CompletedTask,
    };

    // The number is durable before anything is done by it.
    private bool Judge(string? text, bool isAnotherStore)
    {
        if (!isAnotherStore && text == _guard.Value)
        {
            Accept();
            return true;
        }
        var before = _known.Cluster!;
        if (WhyNot(text, _identity, before, isAnotherStore) is { } reason)
        {
            Refuse(reason);
            return false;
        }
        var record = RecordText.Parse<ClusterRecord>(text!);
        var isLater = record.Recovery > before.Recovery;
        _known.Keep(record);
        _guard = new CoordinatorGuard(_key, text!, RecoveryNumber.Of(record));
        Accept();
        if (isLater)
        {
            GoesBy(_log, record.Recovery);
            Joined();
        }
        if (record.FormatLevel > before.FormatLevel || record.ContractLevel > before.ContractLevel)
            LevelsRaised(_log, record.FormatLevel, record.ContractLevel, _identity.FormatLevel, _identity.ContractLevel);
        return true;
    }

    private void Refuse(string reason)
    {
        _refusal = reason;
        if (_refusals.MaySay(reason))
            NotFollowed(_log, reason);
    }

    private void Accept()
    {
        _refusal = null;
        _refusals.Forget();
    }

    [LoggerMessage(
        44, LogLevel.Critical, "ALARM: the coordinator is not followed: {Reason}. Leaders go on; see 'The coordinator's data is lost' in deploy/OPERATIONS.md")]
    private static partial void NotFollowed(ILogger log, string reason);

    [LoggerMessage(
        66, LogLevel.Error, "The coordinator's record could not be kept on this node's disk, so the node goes by the one before and tries again: {Reason}")]
    private static partial void NotKept(ILogger log, string reason);

    [LoggerMessage(45, LogLevel.Warning, "The coordinator's records were rebuilt from the nodes (recovery {Recovery}); this node goes by them from now on")]
    private static partial void GoesBy(ILogger log, ulong recovery);

    [LoggerMessage(50, LogLevel.Information, "The levels in force were raised to format level {Format} and contract level {Contract}. "
        + "This process uses {FormatInUse} and {ContractInUse} until it is restarted")]
    private static partial void LevelsRaised(ILogger log, uint format, uint contract, uint formatInUse, uint contractInUse);
}
