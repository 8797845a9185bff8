// The node's record in the coordinator, under a lease that one loop keeps alive. The record only says where the node is; nothing depends
// on the end of the lease.
using KvCluster.Internal.V1;
using KvCluster.Node.Coordination;
using KvCluster.Node.Runtime;
using KvCluster.Replication.Protocol;
using KvCluster.ServiceDefaults.Logs;
using KvCluster.ServiceDefaults.Programs;
using Microsoft.Extensions.Logging;

namespace KvCluster.Node.Hosting;

/// <summary>Registers the node and keeps it registered until disposed.</summary>
internal sealed class NodeRegistration : IAsyncDisposable
{
    private static readonly TimeSpan LeaseTime = TimeSpan.FromSeconds(10);

    /// <summary>Allows three attempts within a lease.</summary>
    private static readonly TimeSpan Interval = TimeSpan.FromSeconds(3);

    private static readonly TimeSpan RetryPause = TimeSpan.FromMilliseconds(500);

    private readonly ICoordinator _coordinator;
    private readonly string _key;
    private readonly NodeRecord _record;
    private readonly SemaphoreSlim _changed = new(0);
    private readonly ILogger _log;
    private readonly CancellationTokenSource _stopping = new();
    private readonly Task _running;
    private volatile bool _draining;
    private volatile bool _mustRegister;
    private bool _saysDraining;

    /// <summary>
    /// 0: none. Attempts put the record under no other lease before this one has ended, so its end removes the record, whichever of them has arrived.
    /// </summary>
    private long _lease;

    public NodeRegistration(ICoordinator coordinator, CoordinatorKeys keys, NodeIdentity identity, ILogger log)
    {
        _coordinator = coordinator;
        _key = keys.Node(identity.Node);
        _record = new NodeRecord
        {
            NodeId = identity.Node,
            Incarnation = identity.Incarnation,
            Address = identity.Address,
            PeerAddress = identity.PeerAddress,
            AdminAddress = identity.AdminAddress,
            Version = ProgramVersion.Full,
            Levels = identity.Levels.ToMessage(),
            FormatLevel = identity.FormatLevel,
            ContractLevel = identity.ContractLevel,
        };
        _log = log;
        _running = Task.Run(RunAsync);
    }

    /// <summary>Updates the record asynchronously to say whether the node drains. Any thread; never waits.</summary>
    public void SetDraining(bool draining)
    {
        _draining = draining;
        _changed.Release();
    }

    /// <summary>Puts the record again, asynchronously, because the coordinator may have lost it although its lease runs. Any thread; never waits.</summary>
    public void Renew()
    {
        _mustRegister = true;
        _changed.Release();
    }

    /// <summary>Removes the record, if the coordinator answers soon.</summary>
    public async ValueTask DisposeAsync()
    {
        await _stopping.CancelAsync().ConfigureAwait(false);
        await _running.ConfigureAwait(false);
        _stopping.Dispose();
        if (await _coordinator.RevokeSoonAsync(_lease).ConfigureAwait(false) is { } reason)
            HostLog.RegistrationFailed(_log, $"it remains until its lease expires ({reason})");
    }

    private async Task RunAsync()
    {
        var failures = new OncePerMinute(BootClock.Instance);
        while (!_stopping.IsCancellationRequested)
        {
            // The moments at which the node asks the coordinator other things, so that it is woken once for all answers.
            var pause = CommonMoments.Until(Interval);
            try
            {
                if (_lease == 0 || !await _coordinator.KeepAliveAsync(_lease, _stopping.Token).ConfigureAwait(false))
                {
                    _mustRegister = true;
                    _lease = await _coordinator.GrantLeaseAsync(LeaseTime, _stopping.Token).ConfigureAwait(false);
                }
                if (_mustRegister || _saysDraining != _draining)
                    await RegisterAsync().ConfigureAwait(false);
                failures.Forget();
            }
            catch (OperationCanceledException) when (_stopping.IsCancellationRequested)
            {
                return;
            }
            catch (Exception failure)
            {
                // Whatever the failure is, retry: otherwise the node would stay unregistered.
                if (failures.MaySay(failure.Message))
                    HostLog.RegistrationFailed(_log, failure.Message);
                pause = RetryPause;
            }
            await ((Task)_changed.WaitAsync(pause, _stopping.Token)).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        }
    }

    private async Task RegisterAsync()
    {
        // Before the attempt, so that a call meanwhile asks for another one.
        _mustRegister = false;
        var draining = _draining;
        _record.Draining = draining;
        try
        {
            CompareAndSetResult set;
            do
            {
                // Replaces the record of an earlier process, whose lease may still run.
                var read = await _coordinator.GetAsync(_key, _stopping.Token).ConfigureAwait(false);
                set = await _coordinator.CompareAndSetAsync(_key, read.ModRevision, RecordText.Format(_record), _lease, _stopping.Token).ConfigureAwait(false);
            }
            while (set.Outcome != SetOutcome.Won);
        }
        catch
        {
            _mustRegister = true;
            throw;
        }
        _saysDraining = draining;
    }
}
