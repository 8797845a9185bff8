// The embedded coordinator's state in memory, in the types of etcd's API. Used under the coordinator's lock. Pure: the outcome of a transaction is computed
// first (Plan), written to the file by the caller, and then applied. Replay applies the records of the file.
using Google.Protobuf;
using Google.Protobuf.Collections;
using KvCluster.Internal.Etcd;
using CoordinatorLease = KvCluster.Internal.V1.CoordinatorLease;
using CoordinatorRecord = KvCluster.Internal.V1.CoordinatorRecord;

namespace KvCluster.Node.Coordination.Embedded;

/// <summary>Keys with their versions, the newest changes, and leases.</summary>
/// <param name="historyEventsMax">Changes kept for watches.</param>
internal sealed class CoordinatorState(int historyEventsMax)
{
    /// <summary>
    /// All keys and values together. The file has up to four times as much and the newest change, and is read as a whole, for which 2 GiB are the limit.
    /// </summary>
    public const long LiveBytesMax = 256 << 20;

    /// <summary>Keys and values in one record of the whole state. An entry that is larger has a record of its own.</summary>
    private const int PartBytes = 256 << 10;

    private readonly SortedDictionary<ByteString, KeyValue> _keys = new(ByteStringOrder.Instance);
    private readonly Queue<Event> _history = new();
    private readonly Dictionary<long, long> _leaseSeconds = [];

    /// <summary>Random, chosen at creation.</summary>
    public ulong ClusterId { get; private set; }

    /// <summary>The revision of the newest change.</summary>
    public long Revision { get; private set; }

    /// <summary>Changes are kept from this revision on.</summary>
    public long KeptFrom { get; private set; }

    /// <summary>Leases and their times in seconds.</summary>
    public IReadOnlyDictionary<long, long> LeaseSeconds => _leaseSeconds;

    /// <summary>Total size of all keys and values in bytes.</summary>
    public long LiveBytes { get; private set; }

    public ResponseHeader Header() => new() { ClusterId = ClusterId, MemberId = ClusterId, Revision = Revision, RaftTerm = 1 };

    /// <summary>The first record of a file.</summary>
    public static CoordinatorRecord Empty(ulong clusterId) => new() { ClusterId = clusterId, Revision = 1 };

    /// <summary>The whole state, as the first records of a new file. In parts, so that none grows with the state.</summary>
    public IReadOnlyList<CoordinatorRecord> Whole()
    {
        var parts = new List<CoordinatorRecord> { new() { ClusterId = ClusterId, Revision = Revision } };
        parts[0].Granted.AddRange(_leaseSeconds.Select(lease => new CoordinatorLease { Id = lease.Key, TtlSeconds = lease.Value }));
        var bytes = 0L;
        foreach (var kv in _keys.Values)
        {
            if (bytes > 0 && bytes + BytesOf(kv) > PartBytes)
            {
                parts.Add(new CoordinatorRecord { ClusterId = ClusterId, Revision = Revision });
                bytes = 0;
            }
            parts[^1].Events.Add(new Event { Kv = kv });
            bytes += BytesOf(kv);
        }
        for (var part = 0; part < parts.Count; part++)
            parts[part].Following = (uint)(parts.Count - part - 1);
        return parts;
    }

    /// <summary>Replay is finished. From here on changes are kept for watches.</summary>
    public void ForgetHistory()
    {
        _history.Clear();
        KeptFrom = Revision + 1;
    }

    /// <summary>Applies the changes of a record.</summary>
    public void Apply(CoordinatorRecord record)
    {
        ClusterId = record.ClusterId;
        foreach (var lease in record.Granted)
            _leaseSeconds[lease.Id] = lease.TtlSeconds;
        foreach (var lease in record.Ended)
            _leaseSeconds.Remove(lease);
        foreach (var change in record.Events)
            Apply(change);
        Revision = record.Revision;
        while (_history.Count > historyEventsMax)
            KeptFrom = _history.Dequeue().Kv.ModRevision + 1;
        // A revision is kept completely or not at all.
        while (_history.TryPeek(out var oldest) && oldest.Kv.ModRevision < KeptFrom)
            _history.Dequeue();
    }

    /// <summary>Changes from a revision on in a range of keys, in order.</summary>
    public List<Event> Changes(long fromRevision, ByteString key, ByteString rangeEnd) =>
        [.. _history.Where(change => change.Kv.ModRevision >= fromRevision && IsInRange(change.Kv.Key, key, rangeEnd))];

    /// <summary>The keys that a lease holds.</summary>
    public IEnumerable<ByteString> KeysOf(long lease) => _keys.Values.Where(kv => kv.Lease == lease).Select(kv => kv.Key);

    /// <exception cref="CoordinatorRequestException">The requested revision is not the newest one.</exception>
    public RangeResponse Range(RangeRequest request)
    {
        if (request.Revision > Revision)
            throw new CoordinatorRequestException("etcdserver: mvcc: required revision is a future revision");
        if (request.Revision > 0 && request.Revision < Revision)
            throw new CoordinatorRequestException("etcdserver: mvcc: required revision has been compacted");
        var found = Find(request.Key, request.RangeEnd);
        var response = new RangeResponse { Header = Header(), Count = found.Count };
        if (request.CountOnly)
            return response;
        IEnumerable<KeyValue> sorted = request.SortTarget switch
        {
            RangeRequest.Types.SortTarget.Version => found.OrderBy(kv => kv.Version),
            RangeRequest.Types.SortTarget.Create => found.OrderBy(kv => kv.CreateRevision),
            RangeRequest.Types.SortTarget.Mod => found.OrderBy(kv => kv.ModRevision),
            RangeRequest.Types.SortTarget.Value => found.OrderBy(kv => kv.Value, ByteStringOrder.Instance),
            _ => found,
        };
        if (request.SortOrder == RangeRequest.Types.SortOrder.Descend)
            sorted = sorted.Reverse();
        if (request.Limit > 0)
            sorted = sorted.Take((int)Math.Min(request.Limit, int.MaxValue));
        response.Kvs.AddRange(request.KeysOnly ? sorted.Select(WithoutValue) : sorted);
        response.More = response.Kvs.Count < found.Count;
        return response;
    }

    /// <summary>Evaluates a transaction. Returns its response and the record of its changes, which is null if there are none.</summary>
    /// <exception cref="CoordinatorRequestException">It cannot be served; it changes nothing.</exception>
    public TxnResponse Plan(TxnRequest request, out CoordinatorRecord? change)
    {
        var response = new TxnResponse { Succeeded = request.Compare.All(Holds) };
        var events = new RepeatedField<Event>();
        foreach (var operation in response.Succeeded ? request.Success : request.Failure)
            response.Responses.Add(Plan(operation, events));
        change = events.Count == 0 ? null : new CoordinatorRecord { ClusterId = ClusterId, Revision = Revision + 1, Events = { events } };
        if (change is not null)
            CheckRoom(change);
        return response;
    }

    private static bool IsInRange(ByteString candidate, ByteString key, ByteString rangeEnd)
    {
        if (rangeEnd.IsEmpty)
            return candidate.Equals(key);
        // A range end of one zero byte means the end of all keys.
        return ByteStringOrder.Instance.Compare(candidate, key) >= 0
            && (rangeEnd is [0] || ByteStringOrder.Instance.Compare(candidate, rangeEnd) < 0);
    }

    private static KeyValue WithoutValue(KeyValue kv)
    {
        var copy = kv.Clone();
        copy.Value = ByteString.Empty;
        return copy;
    }

    private List<KeyValue> Find(ByteString key, ByteString rangeEnd)
    {
        if (!rangeEnd.IsEmpty)
            return [.. _keys.Values.Where(kv => IsInRange(kv.Key, key, rangeEnd))];
        return _keys.TryGetValue(key, out var found) ? [found] : [];
    }

    // As in etcd, a comparison of a range holds if it holds for each key in it, and of an empty one as of a key that does not exist.
    private bool Holds(Compare compare)
    {
        var found = Find(compare.Key, compare.RangeEnd);
        return found.Count == 0 ? Holds(compare, new KeyValue()) : found.TrueForAll(kv => Holds(compare, kv));
    }

    private static bool Holds(Compare compare, KeyValue kv)
    {
        var order = compare.Target switch
        {
            Compare.Types.CompareTarget.Version => kv.Version.CompareTo(compare.Version),
            Compare.Types.CompareTarget.Create => kv.CreateRevision.CompareTo(compare.CreateRevision),
            Compare.Types.CompareTarget.Mod => kv.ModRevision.CompareTo(compare.ModRevision),
            Compare.Types.CompareTarget.Lease => kv.Lease.CompareTo(compare.Lease),
            _ => ByteStringOrder.Instance.Compare(kv.Value, compare.Value),
        };
        // As in etcd, a comparison with a value that does not exist fails.
        if (compare.Target == Compare.Types.CompareTarget.Value && kv.ModRevision == 0)
            return false;
        return compare.Result switch
        {
            Compare.Types.CompareResult.Equal => order == 0,
            Compare.Types.CompareResult.Greater => order > 0,
            Compare.Types.CompareResult.Less => order < 0,
            _ => order != 0,
        };
    }

    private ResponseOp Plan(RequestOp operation, RepeatedField<Event> events)
    {
        switch (operation.RequestCase)
        {
            case RequestOp.RequestOneofCase.RequestRange when events.Count == 0:
                return new ResponseOp { ResponseRange = Range(operation.RequestRange) };
            case RequestOp.RequestOneofCase.RequestPut:
                return new ResponseOp { ResponsePut = PlanPut(operation.RequestPut, events) };
            case RequestOp.RequestOneofCase.RequestDeleteRange:
                return new ResponseOp { ResponseDeleteRange = PlanDelete(operation.RequestDeleteRange, events) };
            case RequestOp.RequestOneofCase.RequestRange:
                throw new CoordinatorRequestException("The embedded coordinator does not read a range after a change in the same transaction.");
            default:
                throw new CoordinatorRequestException("The embedded coordinator does not support nested transactions.");
        }
    }

    private PutResponse PlanPut(PutRequest put, RepeatedField<Event> events)
    {
        if (put.Key.IsEmpty)
            throw new CoordinatorRequestException("etcdserver: key is not provided");
        if (put.Lease != 0 && !_leaseSeconds.ContainsKey(put.Lease))
            throw new CoordinatorRequestException("etcdserver: requested lease not found", isNotFound: true);
        if (events.Any(earlier => earlier.Kv.Key.Equals(put.Key)))
            throw new CoordinatorRequestException("etcdserver: duplicate key given in txn request");
        var before = _keys.GetValueOrDefault(put.Key);
        var revision = Revision + 1;
        events.Add(new Event
        {
            Kv = new KeyValue
            {
                Key = put.Key,
                Value = put.Value,
                Lease = put.Lease,
                ModRevision = revision,
                CreateRevision = before?.CreateRevision ?? revision,
                Version = (before?.Version ?? 0) + 1,
            },
        });
        return new PutResponse { PrevKv = put.PrevKv ? before : null };
    }

    private DeleteRangeResponse PlanDelete(DeleteRangeRequest delete, RepeatedField<Event> events)
    {
        var found = Find(delete.Key, delete.RangeEnd);
        foreach (var kv in found)
        {
            if (events.Any(earlier => earlier.Kv.Key.Equals(kv.Key)))
                throw new CoordinatorRequestException("etcdserver: duplicate key given in txn request");
            events.Add(Deleted(kv.Key));
        }
        var response = new DeleteRangeResponse { Deleted = found.Count };
        if (delete.PrevKv)
            response.PrevKvs.AddRange(found);
        return response;
    }

    /// <summary>A deletion event of a key at the next revision.</summary>
    public Event Deleted(ByteString key) =>
        new() { Type = Event.Types.EventType.Delete, Kv = new KeyValue { Key = key, ModRevision = Revision + 1 } };

    // Refuses a change that the next start could not read.
    private void CheckRoom(CoordinatorRecord change)
    {
        var bytes = change.CalculateSize();
        if (bytes > CoordinatorFile.PayloadBytesMax)
            throw new CoordinatorRequestException($"The change has {bytes:N0} bytes, and the embedded coordinator takes at most "
                + $"{CoordinatorFile.PayloadBytesMax:N0} at once. Nothing was changed; make smaller changes.");
        var growth = change.Events.Sum(GrowthBy);
        if (growth > 0 && LiveBytes + growth > LiveBytesMax)
            throw new CoordinatorRequestException($"The embedded coordinator has {LiveBytes:N0} bytes of keys and values and takes at most {LiveBytesMax:N0}. "
                + "Nothing was changed; delete keys, or use etcd.");
    }

    private long GrowthBy(Event change) =>
        (change.Type == Event.Types.EventType.Put ? BytesOf(change.Kv) : 0) - (_keys.TryGetValue(change.Kv.Key, out var before) ? BytesOf(before) : 0);

    private static long BytesOf(KeyValue kv) => kv.Key.Length + kv.Value.Length;

    private void Apply(Event change)
    {
        LiveBytes += GrowthBy(change);
        _keys.Remove(change.Kv.Key);
        if (change.Type == Event.Types.EventType.Put)
            _keys.Add(change.Kv.Key, change.Kv);
        _history.Enqueue(change);
    }
}
