using System.Collections.Immutable;
using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>
/// Operations that become visible together, each on the state that those before it have made. One that throws leaves the shard as it was. Used under the lock
/// of the store.
/// </summary>
/// <param name="before">The state of the shard.</param>
/// <param name="now">The time of the store.</param>
/// <param name="shard">Has the end of the shard, and its sessions.</param>
internal sealed class ShardTransaction(ShardState before, TimeSpan now, Shard shard)
{
    private const int OwnedKeysMax = 10_000;
    private const int OwnedBytesMax = 2 << 20;

    private readonly ShardState _before = before;
    private readonly List<KvEvent> _events = [];
    private readonly List<(KvKey Key, TimeSpan At)> _expiries = [];

    /// <summary>The bytes of the values that were touched.</summary>
    private long _bytesTouched;

    /// <summary>The state with all operations so far.</summary>
    public ShardState State { get; private set; } = before;

    /// <summary>What watchers will see, with what each change replaced.</summary>
    public IReadOnlyList<KvEvent> Events => _events;

    /// <summary>Keys that got an expiry, and when they end.</summary>
    public IReadOnlyList<(KvKey Key, TimeSpan At)> Expiries => _expiries;

    /// <summary>Keys that were removed.</summary>
    public long KeysDeleted { get; private set; }

    /// <summary>Members that were added to sets or removed from them.</summary>
    public ulong MembersChanged { get; private set; }

    /// <summary>Applies an operation.</summary>
    /// <exception cref="KvException">It cannot be applied.</exception>
    public OperationResult Apply(V1.Operation operation) => operation.OperationCase switch
    {
        V1.Operation.OperationOneofCase.Put => Put(operation.Put),
        V1.Operation.OperationOneofCase.Delete => Delete(operation.Delete.Key.Memory),
        V1.Operation.OperationOneofCase.DeleteRange => DeleteRange(operation.DeleteRange),
        V1.Operation.OperationOneofCase.Increment => Increment(operation.Increment),
        V1.Operation.OperationOneofCase.Touch => Touch(operation.Touch),
        V1.Operation.OperationOneofCase.SetAdd => ChangeMember(operation.SetAdd, isAdded: true),
        V1.Operation.OperationOneofCase.SetRemove when operation.SetRemove.Member.IsEmpty => DeleteSet(operation.SetRemove.Key.Memory),
        V1.Operation.OperationOneofCase.SetRemove => ChangeMember(operation.SetRemove, isAdded: false),
        V1.Operation.OperationOneofCase.Get => Get(operation.Get.Key.Memory),
        V1.Operation.OperationOneofCase.Scan => Scan(operation.Scan),
        V1.Operation.OperationOneofCase.SetGet => GetSet(operation.SetGet),
        _ => throw new InvalidOperationException($"There is no operation {operation.OperationCase}."),
    };

    /// <summary>Opens a session, which takes a change that watchers do not see.</summary>
    /// <returns>The etag of the opening.</returns>
    public Etag Open() => Take();

    /// <summary>Ends a session with the keys that it owns.</summary>
    public void End(Session session)
    {
        foreach (var key in State.Owned.TryGetValue(session.Opened, out var owned) ? owned : ImmutableSortedSet<KvKey>.Empty)
            Remove(State.Find(key)!, KvEventReason.SessionEnded);
        Take();
    }

    /// <summary>Ends a key whose time is over.</summary>
    public void Expire(StoredKey key) => Remove(key, KvEventReason.Expired);

    private OperationResult Put(V1.PutOperation put)
    {
        KvKey key = put.Key.ToByteArray();
        var entries = Array.Empty<KvEntry>();
        if (put.Sequence)
        {
            var number = (State.Numbers.TryGetValue(key, out var last) ? last : 0) + 1;
            State = State with { Numbers = State.Numbers.SetItem(key, number) };
            key = NumberedKey.Of(key, number);
        }
        var old = State.Find(key);
        TimeSpan? expiry = put.HasTtlMs ? now + TimeSpan.FromMilliseconds(put.TtlMs) : put.KeepExpiry ? old?.Expiry : null;
        Etag? owner = !put.Owner.IsEmpty ? OwnerOf(put.Owner.Memory, key) : put.KeepOwner ? old?.Owner : null;
        var etag = Store(old, key, put.Value.ToByteArray(), expiry, owner);
        if (put.Sequence)
            entries = [new KvEntry(key, default, etag)];
        return new OperationResult(etag, null) { Entries = entries };
    }

    private OperationResult Delete(KvKey key)
    {
        var old = State.Find(key);
        var etag = old is null ? Tell(new KvEvent(KvEventKind.Delete, KvEventReason.User, Own(key), Take()) { IsPreviousKnown = true })
            : Remove(old, KvEventReason.User);
        return new OperationResult(etag, old is not null);
    }

    private OperationResult DeleteRange(V1.RangeOperation range)
    {
        // Watchers of several shards are told where it ends.
        var (start, end) = (Own(range.Start.Memory), range.End.IsEmpty ? shard.End : Own(range.End.Memory));
        var keys = State.Within(new KeyBounds(start, end)).ToList();
        foreach (var key in keys)
            Replace(key, null);
        KeysDeleted += keys.Count;
        var etag = Tell(new KvEvent(KvEventKind.DeleteRange, KvEventReason.User, start, Take()) { RangeEnd = end });
        return new OperationResult(etag, null) { Number = keys.Count };
    }

    private OperationResult Increment(V1.IncrementOperation increment)
    {
        KvKey key = increment.Key.ToByteArray();
        var old = State.Find(key);
        var number = old is null ? 0 : NumberOf(old.Value);
        var sum = unchecked(number + increment.By);
        if (((number ^ sum) & (increment.By ^ sum)) < 0)
            throw Refusals.NumberOverflow();
        return new OperationResult(Store(old, key, KvValue.FromInt64(sum), old?.Expiry, old?.Owner), null) { Number = sum };
    }

    private static long NumberOf(KvValue value)
    {
        try
        {
            return value.ToInt64();
        }
        catch (FormatException)
        {
            throw Refusals.NotANumber();
        }
    }

    // The key keeps its etag. The touch of an absent key takes no change, so watchers do not see it.
    private OperationResult Touch(V1.TouchOperation touch)
    {
        if (State.Find(touch.Key.Memory) is not { } old)
            return new OperationResult(Etag.None, false);
        // A cluster copies the value, and also counts one that the request has replaced before.
        _bytesTouched += Math.Max(old.Value.Length, _before.Find(old.Key)?.Value.Length ?? 0);
        if (_bytesTouched > KvLimits.WriteBytesMax)
            throw Refusals.RangeTooLarge();
        Replace(old, old with { Expiry = touch.HasTtlMs ? now + TimeSpan.FromMilliseconds(touch.TtlMs) : null });
        return new OperationResult(Tell(new KvEvent(KvEventKind.Touch, KvEventReason.User, old.Key, Take())), true);
    }

    private OperationResult ChangeMember(V1.SetOperation change, bool isAdded)
    {
        var (key, member) = (Own(change.Key.Memory), Own(change.Member.Memory));
        var old = State.FindSet(key);
        var had = old?.Members.Contains(member) == true;
        var etag = Etag.None;
        if (had != isAdded)
        {
            var members = old?.Members ?? ImmutableSortedSet<KvKey>.Empty;
            Replace(old, new StoredSet(key, isAdded ? members.Add(member) : members.Remove(member)));
            etag = Tell(new KvEvent(isAdded ? KvEventKind.SetAdd : KvEventKind.SetRemove, KvEventReason.User, key, Take()) { Member = member });
            MembersChanged++;
        }
        return new OperationResult(etag, had) { Number = CountOf(key) };
    }

    private OperationResult DeleteSet(KvKey key)
    {
        var etag = Etag.None;
        if (State.FindSet(key) is { } old)
        {
            Replace(old, old with { Members = ImmutableSortedSet<KvKey>.Empty });
            etag = Tell(new KvEvent(KvEventKind.SetRemove, KvEventReason.User, old.Key, Take()));
            MembersChanged += (ulong)old.Members.Count;
        }
        return new OperationResult(etag, null) { Number = 0 };
    }

    private OperationResult Get(KvKey key) => new(Etag.None, null) { Entries = State.Find(key) is { } found ? [found.ToEntry(keysOnly: false, null)] : [] };

    private OperationResult Scan(V1.RangeOperation scan)
    {
        var limit = scan.Limit == 0 ? KvLimits.ScanEntriesMax : (int)scan.Limit;
        var found = State.Within(new KeyBounds(scan.Start.Memory, scan.End.Memory)).Take(limit + 1).ToList();
        return new OperationResult(Etag.None, null)
        {
            Entries = [.. found.Take(limit).Select(key => key.ToEntry(scan.KeysOnly, null))],
            More = found.Count > limit,
        };
    }

    private OperationResult GetSet(V1.SetOperation of)
    {
        var set = State.FindSet(of.Key.Memory);
        bool? has = of.Member.IsEmpty ? null : set?.Members.Contains(of.Member.Memory) == true;
        return new OperationResult(Etag.None, has) { Number = set?.Members.Count ?? 0 };
    }

    private long CountOf(KvKey set) => State.FindSet(set)?.Members.Count ?? 0;

    private Etag OwnerOf(KvKey id, KvKey key)
    {
        if (shard.FindSession(id) is not { } session)
            throw Refusals.NoOwner();
        var bytes = key.Length;
        if (State.Owned.TryGetValue(session.Opened, out var owned))
        {
            bytes += owned.Sum(static one => one.Length);
            if (owned.Count >= OwnedKeysMax || bytes > OwnedBytesMax)
                throw Refusals.TooManyOwned();
        }
        return session.Opened;
    }

    // Sets a key by a change of its own, and returns its etag.
    private Etag Store(StoredKey? old, KvKey key, KvValue value, TimeSpan? expiry, Etag? owner)
    {
        var etag = Take();
        Replace(old, new StoredKey(key, value, etag, expiry, owner));
        return Tell(new KvEvent(KvEventKind.Put, KvEventReason.User, key, etag)
        {
            Value = value, IsPreviousKnown = true, PreviousEtag = old?.Etag, PreviousValue = old?.Value ?? default,
        });
    }

    // Removes a key by a change of its own, and returns its etag.
    private Etag Remove(StoredKey old, KvEventReason reason)
    {
        Replace(old, null);
        KeysDeleted++;
        return Tell(new KvEvent(KvEventKind.Delete, reason, old.Key, Take())
        {
            IsPreviousKnown = true, PreviousEtag = old.Etag, PreviousValue = old.Value,
        });
    }

    private Etag Tell(KvEvent happened)
    {
        _events.Add(happened);
        return happened.Etag;
    }

    private Etag Take()
    {
        var next = State.Etag;
        next++;
        State = State with { Etag = next };
        return next;
    }

    private void Replace(StoredKey? old, StoredKey? stored)
    {
        var (keys, owned) = (State.Keys, State.Owned);
        if (old is not null)
        {
            keys = keys.Remove(old);
            if (old.Owner is { } session && owned.TryGetValue(session, out var left))
                owned = left.Count == 1 ? owned.Remove(session) : owned.SetItem(session, left.Remove(old.Key));
        }
        if (stored is not null)
        {
            keys = keys.Add(stored);
            if (stored.Owner is { } owner)
                owned = owned.SetItem(owner, (owned.TryGetValue(owner, out var others) ? others : ImmutableSortedSet<KvKey>.Empty).Add(stored.Key));
            if (stored.Expiry is { } at)
                _expiries.Add((stored.Key, at));
        }
        State = State with { Keys = keys, Owned = owned };
    }

    // A set without members does not exist.
    private void Replace(StoredSet? old, StoredSet stored)
    {
        var sets = old is null ? State.Sets : State.Sets.Remove(old);
        State = State with { Sets = stored.Members.IsEmpty ? sets : sets.Add(stored) };
    }

    // The memory of a request belongs to its caller.
    private static KvKey Own(KvKey key) => key.ToArray();
}
