// The coordinator of a local cluster and of tests, entirely in this process and one file. Every change is durable before it is answered or visible. Callers
// wait for the disk under one lock, which is fine for the few changes that a cluster makes to its metadata. A failed write ends it: the first failure is
// kept and thrown to every later caller.
using System.Runtime.CompilerServices;
using System.Security.Cryptography;
using Google.Protobuf;
using KvCluster.Internal.Etcd;
using KvCluster.Node.Coordination.Etcd;
using KvCluster.Replication.Protocol;
using KvCluster.Storage.Files;
using CoordinatorLease = KvCluster.Internal.V1.CoordinatorLease;
using CoordinatorRecord = KvCluster.Internal.V1.CoordinatorRecord;
using Event = KvCluster.Internal.Etcd.Event;

namespace KvCluster.Node.Coordination.Embedded;

/// <summary>A versioned store in a directory. Thread-safe.</summary>
internal sealed class EmbeddedCoordinator : ICoordinator
{
    /// <summary>Changes kept for watches. A watch that falls further behind has to list again.</summary>
    private const int HistoryEventsMax = 10_000;

    /// <summary>The file is rewritten when it is longer than this and than four times its contents.</summary>
    private const long FileBytesMin = 1 << 20;

    private readonly Lock _gate = new();
    private readonly TimeProvider _time;
    private readonly DirectoryLock _directoryLock;
    private readonly CoordinatorState _state;
    private readonly CoordinatorFile _file;
    private readonly Dictionary<long, LeaseClock> _leases = [];
    private TaskCompletionSource _changed = NewSignal();
    private Exception? _failure;
    private bool _isClosed;

    private EmbeddedCoordinator(TimeProvider time, DirectoryLock directoryLock, IFileSystem files, string directory)
    {
        _time = time;
        _directoryLock = directoryLock;
        _state = new CoordinatorState(HistoryEventsMax);
        _file = CoordinatorFile.Open(files, directory, () => CoordinatorState.Empty(RandomId()), _state.Apply);
        _state.ForgetHistory();
        // Nobody could keep a lease alive meanwhile, so each one's full time starts again.
        foreach (var (lease, seconds) in _state.LeaseSeconds)
            _leases.Add(lease, new LeaseClock(this, lease, TimeSpan.FromSeconds(seconds)));
    }

    /// <summary>Opens or creates the store in a directory.</summary>
    /// <exception cref="DirectoryInUseException">Another process has it open.</exception>
    /// <exception cref="CorruptCoordinatorFileException">The file is damaged.</exception>
    public static EmbeddedCoordinator Open(string directory, TimeProvider time) => Open(directory, time, LocalDisk.Instance);

    /// <inheritdoc cref="Open(string, TimeProvider)"/>
    public static EmbeddedCoordinator Open(string directory, TimeProvider time, IFileSystem files)
    {
        DurableDirectory.Create(directory);
        var directoryLock = DirectoryLock.Take(directory);
        try
        {
            return new EmbeddedCoordinator(time, directoryLock, files, directory);
        }
        catch
        {
            directoryLock.Dispose();
            throw;
        }
    }

    /// <summary>Size of the file in bytes.</summary>
    public long FileBytes
    {
        get
        {
            lock (_gate)
                return _file.Bytes;
        }
    }

    public Task<CoordinatorRead> GetAsync(string key, CancellationToken cancellationToken) => Task.FromResult(Read(key));

    public Task<CoordinatorList> ListAsync(string prefix, CancellationToken cancellationToken) => Task.FromResult(List(prefix));

    public Task<CompareAndSetResult> CompareAndSetAsync(
        string key, long expectedRevision, string? value, long lease, CoordinatorGuard? guardedBy, CancellationToken cancellationToken)
    {
        var name = ByteString.CopyFromUtf8(key);
        var change = value is null
            ? new RequestOp { RequestDeleteRange = new DeleteRangeRequest { Key = name } }
            : new RequestOp { RequestPut = new PutRequest { Key = name, Value = ByteString.CopyFromUtf8(value), Lease = lease } };
        lock (_gate)
        {
            if (guardedBy is not null && !Holds(guardedBy))
                return Task.FromException<CompareAndSetResult>(guardedBy.Broken());
            var before = Read(key);
            if (before.ModRevision != expectedRevision)
                return Task.FromResult(new CompareAndSetResult(SetOutcome.Lost, before.Revision));
            return Task.FromResult(new CompareAndSetResult(SetOutcome.Won, ExecuteOwn(new TxnRequest { Success = { change } }).Header.Revision));
        }
    }

    public async IAsyncEnumerable<IReadOnlyList<CoordinatorChange>> WatchAsync(
        string prefix, long fromRevision, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        var key = ByteString.CopyFromUtf8(prefix);
        var end = EtcdRequests.EndOfPrefix(key);
        while (true)
        {
            var changes = await ReadChangesAsync(key, end, fromRevision, cancellationToken).ConfigureAwait(false);
            fromRevision = changes.Header.Revision + 1;
            if (changes.Events.Count > 0)
                yield return [.. changes.Events.Select(ToChange)];
        }
    }

    public Task<long> GrantLeaseAsync(TimeSpan timeToLive, CancellationToken cancellationToken) =>
        Task.FromResult(Grant(new LeaseGrantRequest { TTL = (long)Math.Ceiling(timeToLive.TotalSeconds) }).ID);

    public Task<bool> KeepAliveAsync(long lease, CancellationToken cancellationToken) => Task.FromResult(KeepAlive(lease).TTL > 0);

    public Task RevokeAsync(long lease, CancellationToken cancellationToken)
    {
        TryEnd(lease);
        return Task.CompletedTask;
    }

    // All connections lead to this store, so a new one has nothing to compare anew.
    public ICoordinator Anew() => new PassingCoordinator(this);

    // The store cannot be replaced while this process runs.
    public void ContinueAs(ICoordinator anew)
    {
    }

    /// <summary>The header of a response sent now.</summary>
    public ResponseHeader Header()
    {
        lock (_gate)
        {
            ThrowIfEndedLocked();
            return _state.Header();
        }
    }

    /// <exception cref="CoordinatorRequestException">It cannot be served.</exception>
    public RangeResponse Range(RangeRequest request)
    {
        lock (_gate)
        {
            ThrowIfEndedLocked();
            return _state.Range(request);
        }
    }

    /// <summary>Runs a transaction. Its changes are durable when it returns.</summary>
    /// <exception cref="CoordinatorRequestException">It cannot be served; nothing was changed.</exception>
    public TxnResponse Execute(TxnRequest request)
    {
        lock (_gate)
        {
            ThrowIfEndedLocked();
            var response = _state.Plan(request, out var change);
            if (change is not null)
                WriteLocked(change);
            ThrowIfEndedLocked();
            response.Header = _state.Header();
            return response;
        }
    }

    /// <summary>Grants a lease. If the id is zero, one is assigned.</summary>
    /// <exception cref="CoordinatorRequestException">The id is taken, or the time is not positive.</exception>
    public LeaseGrantResponse Grant(LeaseGrantRequest request)
    {
        if (request.TTL <= 0)
            throw new CoordinatorRequestException("etcdserver: lease TTL must be positive");
        lock (_gate)
        {
            ThrowIfEndedLocked();
            var lease = request.ID == 0 ? (long)(RandomId() >> 1) : request.ID;
            if (_leases.ContainsKey(lease))
                throw new CoordinatorRequestException("etcdserver: lease already exists");
            WriteLocked(new CoordinatorRecord
            {
                ClusterId = _state.ClusterId,
                Revision = _state.Revision,
                Granted = { new CoordinatorLease { Id = lease, TtlSeconds = request.TTL } },
            });
            ThrowIfEndedLocked();
            _leases.Add(lease, new LeaseClock(this, lease, TimeSpan.FromSeconds(request.TTL)));
            return new LeaseGrantResponse { Header = _state.Header(), ID = lease, TTL = request.TTL };
        }
    }

    /// <summary>Restarts a lease's time. A time of zero in the answer means that it has ended.</summary>
    public LeaseKeepAliveResponse KeepAlive(long lease)
    {
        lock (_gate)
        {
            ThrowIfEndedLocked();
            var response = new LeaseKeepAliveResponse { Header = _state.Header(), ID = lease };
            if (_leases.TryGetValue(lease, out var clock))
            {
                clock.Restart();
                response.TTL = (long)clock.TimeToLive.TotalSeconds;
            }
            return response;
        }
    }

    /// <summary>Ends a lease and removes its keys. False if it has already ended.</summary>
    public bool TryEnd(long lease)
    {
        lock (_gate)
        {
            ThrowIfEndedLocked();
            var isEnded = TryEndLocked(lease);
            ThrowIfEndedLocked();
            return isEnded;
        }
    }

    /// <summary>Waits until there are changes from a revision on, and returns those in a range of keys, which may be none.</summary>
    /// <exception cref="CoordinatorCompactedException">Changes from that revision on are no longer kept.</exception>
    public async Task<WatchResponse> ReadChangesAsync(ByteString key, ByteString rangeEnd, long fromRevision, CancellationToken cancellationToken)
    {
        while (true)
        {
            Task changed;
            lock (_gate)
            {
                ThrowIfEndedLocked();
                if (fromRevision < _state.KeptFrom)
                    throw new CoordinatorCompactedException(_state.KeptFrom);
                if (fromRevision <= _state.Revision)
                    return new WatchResponse { Header = _state.Header(), Events = { _state.Changes(fromRevision, key, rangeEnd) } };
                changed = _changed.Task;
            }
            await changed.WaitAsync(cancellationToken).ConfigureAwait(false);
        }
    }

    /// <summary>Ends all watches and closes the file.</summary>
    public ValueTask DisposeAsync()
    {
        lock (_gate)
        {
            if (_isClosed)
                return ValueTask.CompletedTask;
            _isClosed = true;
            foreach (var clock in _leases.Values)
                clock.Dispose();
            _file.Dispose();
            _directoryLock.Dispose();
            _changed.SetResult();
        }
        return ValueTask.CompletedTask;
    }

    private static CoordinatorChange ToChange(Event change) =>
        new(change.Kv.Key.ToStringUtf8(), change.Type == Event.Types.EventType.Delete ? null : change.Kv.Value.ToStringUtf8(), change.Kv.ModRevision);

    private CoordinatorRead Read(string key)
    {
        var found = List(ByteString.CopyFromUtf8(key), ByteString.Empty);
        var entry = found.Entries.SingleOrDefault();
        return new CoordinatorRead(entry.Value, entry.ModRevision, found.Revision);
    }

    private CoordinatorList List(string prefix)
    {
        var key = ByteString.CopyFromUtf8(prefix);
        return List(key, EtcdRequests.EndOfPrefix(key));
    }

    private CoordinatorList List(ByteString key, ByteString rangeEnd)
    {
        var found = Range(new RangeRequest { Key = key, RangeEnd = rangeEnd });
        var entries = found.Kvs.Select(static kv => new CoordinatorChange(kv.Key.ToStringUtf8(), kv.Value.ToStringUtf8(), kv.ModRevision));
        return new CoordinatorList([.. entries], found.Header.Revision);
    }

    private bool Holds(CoordinatorGuard guard)
    {
        var key = ByteString.CopyFromUtf8(guard.Key);
        return guard.Holds(List(key, guard.UnchangedSince is null ? ByteString.Empty : EtcdRequests.EndOfPrefix(key)).Entries);
    }

    // The node's own changes, which take a refusal for a missing answer, as they do with etcd.
    private TxnResponse ExecuteOwn(TxnRequest request)
    {
        try
        {
            return Execute(request);
        }
        catch (CoordinatorRequestException refused)
        {
            throw new CoordinatorUnavailableException(refused.Message, refused);
        }
    }

    private static TaskCompletionSource NewSignal() => new(TaskCreationOptions.RunContinuationsAsynchronously);

    private static ulong RandomId() => BitConverter.ToUInt64(RandomNumberGenerator.GetBytes(sizeof(ulong))) | 1;

    private void ThrowIfEndedLocked()
    {
        Invariant.CheckHeld(_gate);
        if (_failure is not null)
            throw new CoordinatorUnavailableException($"The coordinator stopped: {_failure.Message}", _failure);
        if (_isClosed)
            throw new CoordinatorUnavailableException("The coordinator is closed.");
    }

    // A failure is kept, not thrown; ThrowIfEndedLocked reports it.
    private void WriteLocked(CoordinatorRecord record)
    {
        Invariant.CheckHeld(_gate);
        try
        {
            _file.Append(record);
            _state.Apply(record);
            if (_file.Bytes > FileBytesMin && _file.Bytes > 4 * _state.LiveBytes)
                _file.Rewrite(_state.Whole());
        }
        catch (IOException failure)
        {
            _failure = failure;
        }
        if (record.Events.Count == 0 && _failure is null)
            return;
        var changed = _changed;
        _changed = NewSignal();
        changed.SetResult();
    }

    private bool TryEndLocked(long lease)
    {
        Invariant.CheckHeld(_gate);
        if (!_leases.Remove(lease, out var clock))
            return false;
        clock.Dispose();
        var record = new CoordinatorRecord { ClusterId = _state.ClusterId, Revision = _state.Revision, Ended = { lease } };
        record.Events.AddRange(_state.KeysOf(lease).Select(_state.Deleted));
        if (record.Events.Count > 0)
            record.Revision++;
        WriteLocked(record);
        return true;
    }

    // On a thread of the pool. A timer may fire a little early, or may have fired while the lease was kept alive.
    private void Expire(LeaseClock clock, long lease)
    {
        lock (_gate)
        {
            if (_isClosed || _failure is not null || !_leases.ContainsKey(lease))
                return;
            if (clock.Remaining > TimeSpan.Zero)
                clock.Rearm();
            else
                TryEndLocked(lease);
        }
    }

    /// <summary>The end of a lease. Used under the coordinator's lock, except for the timer.</summary>
    private sealed class LeaseClock : IDisposable
    {
        private readonly EmbeddedCoordinator _owner;
        private readonly ITimer _timer;
        private long _started;

        public LeaseClock(EmbeddedCoordinator owner, long lease, TimeSpan timeToLive)
        {
            _owner = owner;
            TimeToLive = timeToLive;
            _started = owner._time.GetTimestamp();
            _timer = owner._time.CreateTimer(_ => owner.Expire(this, lease), null, timeToLive, Timeout.InfiniteTimeSpan);
        }

        public TimeSpan TimeToLive { get; }

        public TimeSpan Remaining => TimeToLive - _owner._time.GetElapsedTime(_started);

        public void Restart()
        {
            _started = _owner._time.GetTimestamp();
            Rearm();
        }

        // Rounded up to whole milliseconds, the unit of timers.
        public void Rearm() => _timer.Change(TimeSpan.FromMilliseconds(Math.Ceiling(Math.Max(1, Remaining.TotalMilliseconds))), Timeout.InfiniteTimeSpan);

        public void Dispose() => _timer.Dispose();
    }
}
