using System.Buffers.Binary;
using System.Globalization;
using Google.Protobuf;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.V1;

namespace KvCluster.Tests.Client.Hostile;

/// <summary>
/// What the nodes of a <see cref="HostileCluster"/> store, with all that it ever was, so that an answer can be compared with the states in the time of its
/// call. Moments count the changes and whatever else is to be ordered among them.
/// </summary>
internal sealed class HostileModel
{
    private static readonly KeyState[] Never = [new KeyState(0, Etag.None, null)];

    private readonly SortedDictionary<string, List<KeyState>> _keys = new(StringComparer.Ordinal);
    private readonly Dictionary<string, List<AppliedChange>> _applied = [];
    private readonly Dictionary<(uint Shard, ulong Change), RecordedSession> _sessions = [];
    private readonly List<KeyChange> _changes = [];
    private ShardRoute[] _routes;
    private ulong _change;

    /// <param name="splits">Where the shards but the first one begin.</param>
    /// <param name="nodes">The number of nodes.</param>
    public HostileModel(string[] splits, int nodes) => _routes =
    [
        .. Enumerable.Range(0, splits.Length + 1).Select(index => new ShardRoute
        {
            Shard = (uint)index + 1,
            Start = index == 0 ? ByteString.Empty : ByteString.CopyFromUtf8(splits[index - 1]),
            End = index == splits.Length ? ByteString.Empty : ByteString.CopyFromUtf8(splits[index]),
            Generation = 1,
            Epoch = 1,
            Leader = (uint)(index % nodes) + 1,
            Nodes = { Enumerable.Range(1, nodes).Select(static node => (uint)node) },
        }),
    ];

    public IReadOnlyList<ShardRoute> Routes => _routes;

    /// <summary>The newest moment.</summary>
    public long Moment { get; private set; }

    /// <summary>All changes, in their order.</summary>
    public IReadOnlyList<KeyChange> Changes => _changes;

    public IReadOnlyCollection<string> Keys => _keys.Keys;

    /// <summary>A moment that is after all that happened so far, and before all that follows.</summary>
    public long NextMoment() => ++Moment;

    public ShardRoute RouteOf(string key) => Array.Find(_routes, route => Has(route, key))!;

    /// <summary>Gives a shard another leader in a new epoch; 0: it has none.</summary>
    public void Lead(uint shard, uint node) => _routes =
        [.. _routes.Select(route => route.Shard == shard ? new ShardRoute(route) { Leader = node, Epoch = route.Epoch + 1 } : route)];

    /// <summary>Makes a shard of the keys from one on.</summary>
    public void Split(string at, uint leader)
    {
        var split = RouteOf(at);
        if (split.Start.ToStringUtf8() == at)
            return;
        var key = ByteString.CopyFromUtf8(at);
        var upper = new ShardRoute(split) { Shard = (uint)_routes.Length + 1, Start = key, Leader = leader };
        var lower = new ShardRoute(split) { End = key, Generation = split.Generation + 1 };
        _routes = [.. _routes.Select(route => route == split ? lower : route), upper];
    }

    /// <summary>Ends one of the sessions of callers.</summary>
    public void EndSession(Random random)
    {
        if (_sessions.Count > 0)
            _sessions.Remove(_sessions.Keys.ElementAt(random.Next(_sessions.Count)));
    }

    /// <summary>How often, and how, the change with a mark was applied. Each change that is counted has a mark of its own.</summary>
    public IReadOnlyList<AppliedChange> AppliedOf(string mark) => _applied.TryGetValue(mark, out var applied) ? applied : [];

    public KeyState StateOf(string key, long moment)
    {
        var states = StatesOf(key);
        for (var index = states.Count - 1; ; index--)
        {
            if (states[index].Moment <= moment)
                return states[index];
        }
    }

    /// <summary>Whether a key was in such a state at some moment of a time, both ends included.</summary>
    public bool Was(string key, long from, long to, Func<KeyState, bool> expected)
    {
        var states = StatesOf(key);
        for (var index = states.Count - 1; index >= 0; index--)
        {
            var state = states[index];
            if (state.Moment > to)
                continue;
            if (expected(state))
                return true;
            if (state.Moment <= from)
                return false;
        }
        return false;
    }

    /// <summary>The moments from the one at which a key got a state to the one at which it lost it; null if it never was in it.</summary>
    public (long From, long To)? TimeOf(string key, bool found, Etag etag, long from, long to)
    {
        var states = StatesOf(key);
        for (var index = states.Count - 1; index >= 0; index--)
        {
            var state = states[index];
            var end = index + 1 < states.Count ? states[index + 1].Moment - 1 : long.MaxValue;
            if (state.Moment <= to && end >= from && (state.Value is not null) == found && (!found || state.Etag == etag))
                return (Math.Max(from, state.Moment), Math.Min(to, end));
        }
        return null;
    }

    /// <summary>The entries of a range as they were at a moment, in the order of their keys.</summary>
    /// <param name="within">Only those of a shard; null: of all.</param>
    /// <param name="range">The range.</param>
    /// <param name="moment">The moment.</param>
    public List<(string Key, KeyState State)> Entries(ShardRoute? within, TextRange range, long moment) =>
    [
        .. _keys.Keys.Where(key => range.Has(key) && (within is null || Has(within, key)))
            .Select(key => (Key: key, State: StateOf(key, moment))).Where(static entry => entry.State.Value is not null),
    ];

    /// <summary>Where a range goes on behind a shard; null if it ends there.</summary>
    public static ByteString? NextOf(ShardRoute? within, TextRange range)
    {
        if (within is null || within.End.IsEmpty)
            return null;
        var next = within.End.ToStringUtf8();
        var isBeforeEnd = range.End.Length == 0 || string.CompareOrdinal(next, range.End) < 0;
        return isBeforeEnd && (string.CompareOrdinal(next, range.Prefix) < 0 || next.StartsWith(range.Prefix, StringComparison.Ordinal)) ? within.End : null;
    }

    public Position PositionOf(ShardRoute route) => new() { Shard = route.Shard, Etag = new Etag(route.Epoch, _change).ToMessage() };

    /// <summary>Executes a call at a node, or refuses it.</summary>
    /// <param name="call">The call.</param>
    /// <param name="node">The node.</param>
    /// <param name="isRouter">Whether it passes calls on to the leader of their shard.</param>
    public Reply Serve(Call call, HostileNode node, bool isRouter)
    {
        var at = new Place(call, node, isRouter);
        var message = call.Request;
        return call.Method switch
        {
            V1.Method.Get => Get(at, GetRequest.Parser.ParseFrom(message)),
            V1.Method.GetMany => GetMany(at, GetManyRequest.Parser.ParseFrom(message)),
            V1.Method.Count => Count(at, CountRequest.Parser.ParseFrom(message)),
            V1.Method.List => List(at, ListRequest.Parser.ParseFrom(message)),
            V1.Method.OpenSession => OpenSession(at, OpenSessionRequest.Parser.ParseFrom(message)),
            V1.Method.Put => Put(at, PutRequest.Parser.ParseFrom(message)),
            V1.Method.Delete => Delete(at, DeleteRequest.Parser.ParseFrom(message)),
            V1.Method.Increment => Increment(at, IncrementRequest.Parser.ParseFrom(message)),
            V1.Method.Write => Write(at, WriteRequest.Parser.ParseFrom(message)),
            _ => FakeNode.Refuse(call, StatusCode.InvalidArgument, "BAD_REQUEST"),
        };
    }

    /// <summary>Why a node does not serve a stream of the shard of a key; null if it does.</summary>
    public RpcException? RefusalOf(HostileNode node, string key, bool atAnyReplica)
    {
        var route = RouteOf(key);
        if (atAnyReplica || route.Leader == node.Id)
            return null;
        var reply = FakeNode.Refuse(new Call(), StatusCode.Unavailable, "NOT_LEADER", "no", HintOf(node));
        return Google.Rpc.Status.Parser.ParseFrom(reply.Status).ToRpcException();
    }

    private static bool Has(ShardRoute route, string key) => string.CompareOrdinal(key, route.Start.ToStringUtf8()) >= 0
        && (route.End.IsEmpty || string.CompareOrdinal(key, route.End.ToStringUtf8()) < 0);

    private static RouteHint HintOf(HostileNode node) => new() { Routes = { node.Known } };

    private IReadOnlyList<KeyState> StatesOf(string key) => _keys.TryGetValue(key, out var states) ? states : Never;

    private Reply? RefusalOf(Place at, string key, bool atAnyReplica = false)
    {
        var route = RouteOf(key);
        if (!at.IsRouter && at.Call.Shard != route.Shard)
            return FakeNode.Refuse(at.Call, StatusCode.Unavailable, "WRONG_SHARD", "no", HintOf(at.Node));
        if (atAnyReplica)
            return null;
        if (route.Leader == 0)
            return FakeNode.Refuse(at.Call, StatusCode.Unavailable, "NO_LEADER");
        return at.IsRouter || route.Leader == at.Node.Id ? null
            : FakeNode.Refuse(at.Call, StatusCode.Unavailable, "NOT_LEADER", "no", HintOf(at.Node));
    }

    private Reply? ShardsDiffer(Place at, IReadOnlyList<string> keys)
    {
        ShardRoute[] routes = [.. keys.Select(RouteOf).DistinctBy(static route => route.Shard)];
        return routes.Length > 1
            ? FakeNode.Refuse(at.Call, StatusCode.FailedPrecondition, "SHARDS_DIFFER", "no", new RouteHint { Routes = { routes } })
            : null;
    }

    private Reply Read(Place at, string key, ReadOptions? read, Func<long, IMessage> answer)
    {
        var atAnyReplica = read?.Mode.IsForLeader() == false;
        return RefusalOf(at, key, atAnyReplica) ?? at.Answer(answer(atAnyReplica ? at.Node.ReplicaMoment : Moment));
    }

    private GetResponse Entry(string key, long moment)
    {
        var state = StateOf(key, moment);
        var response = new GetResponse { Position = PositionOf(RouteOf(key)) };
        if (state.Value is not { } value)
            return response;
        (response.Found, response.Value, response.Etag) = (true, ByteString.CopyFromUtf8(value), state.Etag.ToMessage());
        return response;
    }

    private Reply Get(Place at, GetRequest request)
    {
        var key = request.Key.ToStringUtf8();
        return Read(at, key, request.Read, moment => Entry(key, moment));
    }

    private Reply GetMany(Place at, GetManyRequest request)
    {
        string[] keys = [.. request.Keys.Select(static key => key.ToStringUtf8())];
        return (at.IsRouter ? null : ShardsDiffer(at, keys))
            ?? Read(at, keys[0], request.Read, moment => new GetManyResponse { Entries = { keys.Select(key => Entry(key, moment)) } });
    }

    private Reply Count(Place at, CountRequest request)
    {
        var range = new TextRange(request.Start.ToStringUtf8(), request.End.ToStringUtf8(), request.Prefix.ToStringUtf8(), "");
        return Read(at, range.First, request.Read, moment =>
        {
            var route = RouteOf(range.First);
            var within = at.IsRouter ? null : route;
            var response = new CountResponse { Position = PositionOf(route), Count = (ulong)Entries(within, range, moment).Count };
            if (NextOf(within, range) is { } next)
                response.NextStart = next;
            return response;
        });
    }

    // As it is used to find out the etag of one key.
    private Reply List(Place at, ListRequest request)
    {
        var key = request.Start.ToStringUtf8();
        return Read(at, key, request.Read, moment =>
        {
            var response = new ListResponse { Position = PositionOf(RouteOf(key)) };
            if (StateOf(key, moment) is { Value: not null } state)
                response.Entries.Add(new V1.Entry { Key = request.Start, Etag = state.Etag.ToMessage() });
            return response;
        });
    }

    private Reply OpenSession(Place at, OpenSessionRequest request)
    {
        var key = request.Key.ToStringUtf8();
        if (RefusalOf(at, key) is { } refusal)
            return refusal;
        var route = RouteOf(key);
        _sessions.Add((route.Shard, ++_change), new RecordedSession());
        var id = new byte[16];
        BinaryPrimitives.WriteUInt64LittleEndian(id, _change);
        return at.Answer(new OpenSessionResponse { Position = PositionOf(route), Session = ByteString.CopyFrom(id) });
    }

    private Reply Put(Place at, PutRequest request)
    {
        var (key, value) = (request.Key.ToStringUtf8(), request.Value.ToStringUtf8());
        return Change(at, request.RequestId, [key], () => Execute(at, key, request.Conditions, () =>
        {
            var etag = Apply(key, value);
            Note(value, etag, 0);
            return new PutResponse { Position = PositionOf(key, etag) };
        }));
    }

    private Reply Delete(Place at, DeleteRequest request)
    {
        var key = request.Key.ToStringUtf8();
        return Change(at, request.RequestId, [key], () => Execute(at, key, request.Conditions, () =>
        {
            var existed = StateOf(key, Moment).Value is not null;
            return new DeleteResponse { Position = PositionOf(key, Apply(key, null)), Existed = existed };
        }));
    }

    private Reply Increment(Place at, IncrementRequest request)
    {
        var key = request.Key.ToStringUtf8();
        return Change(at, request.RequestId, [key], () => Execute(at, key, request.Conditions, () =>
        {
            var number = request.By + long.Parse(StateOf(key, Moment).Value ?? "0", CultureInfo.InvariantCulture);
            var etag = Apply(key, Text(number));
            Note(Text(request.By), etag, number);
            return new IncrementResponse { Position = PositionOf(key, etag), Number = number };
        }));
    }

    private Reply Write(Place at, WriteRequest request)
    {
        string[] keys = [.. request.Operations.Select(static operation => operation.Put.Key.ToStringUtf8())];
        return ShardsDiffer(at, keys) ?? Change(at, request.RequestId, keys, () => Execute(at, keys[0], request.Conditions, () =>
        {
            var etag = Etag.None;
            foreach (var operation in request.Operations)
                etag = Apply(operation.Put.Key.ToStringUtf8(), operation.Put.Value.ToStringUtf8());
            Note(request.Operations[0].Put.Value.ToStringUtf8(), etag, 0);
            return new WriteResponse { Position = PositionOf(keys[0], etag) };
        }));
    }

    // As in the contract (RequestId): executed when it comes for the first time, and later answered as then.
    private Reply Change(Place at, RequestId? id, string[] keys, Func<Reply> execute)
    {
        if (RefusalOf(at, keys[0]) is { } refusal)
            return refusal;
        if (id is null)
            return execute();
        var name = (id.Shard, BinaryPrimitives.ReadUInt64LittleEndian(id.Session.Span));
        if (id.Shard != RouteOf(keys[0]).Shard || !_sessions.TryGetValue(name, out var session))
            return FakeNode.Refuse(at.Call, StatusCode.Aborted, "SESSION_EXPIRED", "unknown");
        session.SettleBelow(id.LowestOpen);
        if (id.Sequence < session.LowestOpen)
            return FakeNode.Refuse(at.Call, StatusCode.Aborted, "SEQUENCE_CLOSED", "unknown");
        if (!session.Results.TryGetValue(id.Sequence, out var first))
            session.Results.Add(id.Sequence, first = execute());
        return new Reply(first) { Id = at.Call.Id };
    }

    private Reply Execute(Place at, string key, IEnumerable<Condition> conditions, Func<IMessage> apply)
    {
        var place = 0;
        foreach (var condition in conditions)
        {
            if (!Holds(condition, StateOf(condition.Key.IsEmpty ? key : condition.Key.ToStringUtf8(), Moment)))
                return ConditionFailed(at, place, RouteOf(key));
            place++;
        }
        return at.Answer(apply());
    }

    private static bool Holds(Condition condition, KeyState state) => condition.TestCase switch
    {
        Condition.TestOneofCase.Exists => condition.Exists == state.Value is not null,
        Condition.TestOneofCase.EtagEquals => state.Value is not null && condition.EtagEquals.ToEtag() == state.Etag,
        Condition.TestOneofCase.ValueEquals => condition.ValueEquals.ToStringUtf8() == state.Value,
        _ => throw new InvalidOperationException("A condition without an expectation."),
    };

    private Reply ConditionFailed(Place at, int index, ShardRoute route)
    {
        var info = StatusDetails.Info("CONDITION_FAILED", StatusDetails.NotApplied);
        info.Metadata["condition"] = Text(index);
        info.Metadata["shard"] = Text(route.Shard);
        info.Metadata["etag"] = PositionOf(route).Etag.ToEtag().ToString();
        var status = StatusDetails.Create(StatusCode.FailedPrecondition, $"condition {index} does not hold", info);
        return new Reply { Id = at.Call.Id, Code = status.Code, Status = status.ToByteString() };
    }

    private Etag Apply(string key, string? value)
    {
        var route = RouteOf(key);
        var etag = new Etag(route.Epoch, ++_change);
        if (!_keys.TryGetValue(key, out var states))
            _keys[key] = states = [.. Never];
        states.Add(new KeyState(++Moment, etag, value));
        _changes.Add(new KeyChange(route.Shard, key, etag, value));
        return etag;
    }

    private void Note(string mark, Etag etag, long number)
    {
        if (!_applied.TryGetValue(mark, out var applied))
            _applied[mark] = applied = [];
        applied.Add(new AppliedChange(Moment, etag, number));
    }

    private Position PositionOf(string key, Etag etag) => new() { Shard = RouteOf(key).Shard, Etag = etag.ToMessage() };

    private static string Text(long number) => number.ToString(CultureInfo.InvariantCulture);

    /// <summary>Where a call is served.</summary>
    private readonly record struct Place(Call Call, HostileNode Node, bool IsRouter)
    {
        public Reply Answer(IMessage response) => new() { Id = Call.Id, Response = response.ToByteString() };
    }

    private sealed class RecordedSession
    {
        public SortedDictionary<ulong, Reply> Results { get; } = [];

        public ulong LowestOpen { get; private set; }

        public void SettleBelow(ulong lowestOpen)
        {
            LowestOpen = Math.Max(LowestOpen, lowestOpen);
            while (Results.Count > 0 && Results.Keys.First() is var first && first < LowestOpen)
                Results.Remove(first);
        }
    }
}

/// <summary>What a key was from a moment on; without a value it did not exist.</summary>
internal readonly record struct KeyState(long Moment, Etag Etag, string? Value);

/// <summary>A change of a key; without a value it was deleted.</summary>
internal readonly record struct KeyChange(uint Shard, string Key, Etag Etag, string? Value);

/// <summary>How a marked change was applied: the etag of its last operation, and the number after an increment.</summary>
internal readonly record struct AppliedChange(long Moment, Etag Etag, long Number);

/// <summary>A range of keys; texts that are empty do not restrict it.</summary>
internal readonly record struct TextRange(string Start, string End, string Prefix, string After)
{
    /// <summary>A key in whose shard it begins.</summary>
    public string First => Greater(Greater(Start, Prefix), After);

    public bool Has(string key) => string.CompareOrdinal(key, Start) >= 0 && (End.Length == 0 || string.CompareOrdinal(key, End) < 0)
        && key.StartsWith(Prefix, StringComparison.Ordinal) && (After.Length == 0 || string.CompareOrdinal(key, After) > 0);

    private static string Greater(string left, string right) => string.CompareOrdinal(left, right) >= 0 ? left : right;
}
