using System.Collections.Concurrent;
using System.Numerics;
using System.Threading.Tasks.Sources;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// One caller's conditions and operations, applied as a whole or not at all. Rented, filled and awaited by the caller's thread. From
/// <c>RequestAdmission.TrySubmit</c> until it is answered it belongs to the store. The continuation runs on the completions executor or the thread pool, never
/// on the writer. Awaiting <see cref="Completion"/> returns the request to the pool.
/// </summary>
internal sealed class WriteRequest : IValueTaskSource<WriteResult>, IThreadPoolWorkItem, IWorkItem
{
    /// <summary>Greatest sequence of a session. A client that counts from 1 never reaches it.</summary>
    public const ulong SequenceMax = long.MaxValue;

    // The state of a request in the store; 0 outside the store. It shares one word with the number of the rental, which is unique, because a caller may
    // give up a request that was answered long ago and now belongs to another caller.
    private const long Queued = 1;
    private const long Taken = 2;
    private const long GivenUp = 3;
    private const long OneLife = 4;

    private const int OperationBytesMin = 256;

    /// <summary>What an operation may have more in a record than in a request: an expiry, an owner or a number, and its result.</summary>
    private const int ExecutedBytesMax = KeyLife.BytesMax + NumberText.KeyDigits + OperationResults.ResultBytesMax;
    private const int PooledMax = 8_192;
    private const int PooledBytesMax = 64 << 10;

    /// <summary>Bytes of the larger buffers that are kept, all together. That is enough for several loads at once.</summary>
    private const int LargePooledBytesMax = 8 << 20;
    private static readonly ConcurrentQueue<WriteRequest> Pool = new();

    /// <summary>Requests with larger buffers. They have a pool of their own, because a load would seldom get one of them from the other.</summary>
    private static readonly ConcurrentQueue<WriteRequest> LargePool = new();
    private static int _pooled;
    private static int _largePooledBytes;
    private readonly ByteBuffer _conditions = new(0);
    private readonly ByteBuffer _operations = new(OperationBytesMin);
    private ManualResetValueTaskSourceCore<WriteResult> _core;
    private long _life;

    /// <summary>Whether the request was rented for many bytes.</summary>
    private bool _isLarge;

    /// <summary>Plain puts, and operations of the first list and of both that are not reads.</summary>
    private int _puts;
    private int _firstChanges;
    private int _changes;

    /// <summary>Where the failure list begins, and how many operations are before it.</summary>
    private int _failureAt;
    private int _firstCount;

    private int _conditionCount;
    private bool _hasRangeCondition;

    /// <summary>Whether an operation depends on the state or the time.</summary>
    private bool _isDependent;
    private int _releases;
    private RequestQueue? _queue;

    private WriteRequest()
    {
    }

    /// <summary>Timestamp of the store's <see cref="TimeProvider"/> after which the request is not applied; 0 = none.</summary>
    public long DeadlineTimestamp { get; set; }

    /// <summary>Timestamp of the same clock at which the request arrived, for measurements; 0 = unknown.</summary>
    public long ArrivedTimestamp { get; set; }

    /// <summary>The trace that follows the request, for <see cref="StoreObserver"/>; null = none.</summary>
    public object? Trace { get; set; }

    /// <summary>
    /// Whether a thread stands still until it is answered. It is then answered on the thread that knows the answer, and not by the completions executor or the
    /// pool, which may have nothing but such threads.
    /// </summary>
    public bool IsAwaitedByThread { get; set; }

    /// <summary>The answer. Await it once; do not touch the request afterwards.</summary>
    public ValueTask<WriteResult> Completion => new(this, _core.Version);

    /// <summary>Identifies this rental of the object for <see cref="GiveUp"/>. Read it before the request is submitted.</summary>
    public long Life => Volatile.Read(ref _life) & -OneLife;

    /// <summary>Bytes that count towards the queue's bound.</summary>
    public int Bytes => _conditions.Count + _operations.Count;

    /// <summary>Operations added.</summary>
    public int OperationCount { get; private set; }

    /// <summary>Whether the operations from <see cref="BeginFailureList"/> on are applied instead of the others, if a condition does not hold.</summary>
    public bool HasFailureList { get; private set; }

    /// <summary>
    /// Whether the answer has a result for each operation of the list that is applied. Then each list has at most <see cref="KvLimits.ResultsMax"/>.
    /// </summary>
    public bool WantsResults { get; set; }

    /// <summary>
    /// Whether <see cref="WriteResult.Deleted"/> is the number of members that were added to sets and removed from them. Like with results, operations on sets
    /// that would change nothing then take no change.
    /// </summary>
    public bool CountsMembers { get; set; }

    /// <summary>Whether operations on sets that would change nothing take no change, also without results.</summary>
    public bool LeavesOutUnchanged { get; set; }

    /// <summary>Whether the request is applied by <see cref="RequestExecution"/>, operation by operation, and not as it is encoded.</summary>
    public bool IsExecuted => _isDependent || WantsResults || CountsMembers || LeavesOutUnchanged;

    /// <summary>Operations of the list to which the next one is added.</summary>
    public int ListCount => OperationCount - _firstCount;

    /// <summary>Whether any operation does more than read.</summary>
    public bool HasChanges => _changes > 0;

    /// <summary>Whether any operation is a put or adds to a set, for which a full disk has no room.</summary>
    public bool HasPut { get; private set; }

    /// <summary>Whether the request only puts, and under no condition, so that its answer does not depend on the state.</summary>
    public bool IsBlind => _puts > 0 && _puts == OperationCount && _conditions.Count == 0 && !IsExecuted;

    /// <summary>Whether the request can take room in the journal, because it changes something or its result is kept.</summary>
    public bool MayBeRecorded => _changes > 0 || Sequence != 0;

    /// <summary>About how many bytes more it may have in a record than its encoded operations.</summary>
    public int RecordBytesMore => (HasRange ? KvLimits.KeyBytesMax : 0)
        + (IsExecuted ? OperationCount * ExecutedBytesMax : 0)
        + (WantsResults && Sequence != 0 && _changes < OperationCount ? KvLimits.KeptResultsBytesMax : 0);

    /// <summary>The request's outcome where the disk is full and has no room for it.</summary>
    public WriteOutcome OutcomeOnFullDisk => HasPut ? WriteOutcome.DiskFull : WriteOutcome.NoRoomYet;

    /// <summary>Whether any operation deletes a range of keys or a set, of which one record deletes no more than a bound.</summary>
    public bool HasRange { get; private set; }

    /// <summary>Whether any operation reads a range.</summary>
    public bool ReadsRange { get; private set; }

    /// <summary>
    /// Whether any operation is an increment. A list with one has at most <see cref="KvLimits.ResultsMax"/>, because each looks at those before it.
    /// </summary>
    public bool HasIncrement { get; private set; }

    /// <summary>
    /// About how many keys the writer will look up for it. A range counts as so many that its pages are read before the writer begins (<see
    /// cref="ReadAhead"/>).
    /// </summary>
    public int KeysLookedUp => OperationCount + _conditionCount + (HasRange || ReadsRange || _hasRangeCondition ? ReadAhead.KeysMin : 0);

    /// <summary>Where <see cref="PathPrefetch"/> has it among those that it was told of; 0 if it was not told of all its keys.</summary>
    internal long PrefetchNumber { get; set; }

    /// <summary>By what <see cref="ReadAhead"/> tells it from others; 0 if it was not asked for.</summary>
    internal ulong WorkNumber { get; set; }

    /// <summary>Whether the request is refused with <see cref="WriteOutcome.RangeTooLarge"/> where a part of it would be applied.</summary>
    public bool IsWhole { get; set; }

    /// <summary>The session that identifies the request, or that it opens; 0 = neither.</summary>
    public UInt128 Session { get; private set; }

    /// <summary>The request's number in its session.</summary>
    public ulong Sequence { get; private set; }

    /// <summary>The client's statement that requests of the session below this sequence are settled.</summary>
    public ulong LowestOpen { get; private set; }

    /// <summary>Whether the request opens a session, and does nothing else.</summary>
    public bool OpensSession { get; private set; }

    /// <summary>The lifetime of the session that it opens, in milliseconds; 0 = none.</summary>
    public ulong LifetimeMilliseconds { get; private set; }

    /// <summary>Whether the request ends a session, and does nothing else.</summary>
    public bool EndsSession { get; private set; }

    /// <summary>Whether the request says of sessions that nothing is recorded of what is left of their lifetimes, and does nothing else.</summary>
    public bool KeepsSessions { get; private set; }

    /// <summary>The owner that opens the session.</summary>
    public QuotaOwner Owner { get; private set; }

    /// <summary>For an identified request: a checksum of its conditions and operations, which distinguishes a repetition from a different request.</summary>
    internal uint Digest { get; private set; }

    /// <summary>All operations, encoded for <see cref="RequestReader"/>; unless it <see cref="IsExecuted"/>, as in a record's payload.</summary>
    internal ReadOnlySpan<byte> EncodedOperations => _operations.Written;

    /// <summary>The operations that are applied if all conditions hold, or if one does not.</summary>
    internal RequestOperations List(bool isFailure) => isFailure
        ? new RequestOperations(_operations.Written[_failureAt..], OperationCount - _firstCount, _changes - _firstChanges)
        : HasFailureList
            ? new RequestOperations(_operations.Written[.._failureAt], _firstCount, _firstChanges)
            : new RequestOperations(_operations.Written, OperationCount, _changes);

    /// <summary>The conditions, encoded for <see cref="ConditionReader"/>.</summary>
    internal ReadOnlySpan<byte> EncodedConditions => _conditions.Written;

    /// <summary>The next request of an <see cref="AnswerChain"/>.</summary>
    internal WriteRequest? NextAnswer { get; set; }

    /// <summary>The answer, set before it may leave.</summary>
    internal WriteResult Result { get; set; }

    /// <summary>The answer may leave when a state with this etag, or a newer one, is published.</summary>
    internal Etag ReleaseEtag { get; set; }

    /// <summary>Whether the answer depends on a state but is in no record. Only a leader whose leadership is confirmed may give it.</summary>
    internal bool IsReadAnswer { get; set; }

    /// <summary>An empty request.</summary>
    /// <param name="bytes">About how many bytes of operations it will have.</param>
    public static WriteRequest Rent(int bytes = 0)
    {
        var isLarge = bytes >= PooledBytesMax;
        if (isLarge && LargePool.TryDequeue(out var large))
        {
            Interlocked.Add(ref _largePooledBytes, -large._operations.Capacity);
            return large;
        }
        if (!Pool.TryDequeue(out var request))
            return new WriteRequest { _isLarge = isLarge };
        Interlocked.Decrement(ref _pooled);
        request._isLarge = isLarge;
        return request;
    }

    /// <summary>Adds a condition. Conditions are evaluated in order; the first that does not hold is named in the answer.</summary>
    /// <param name="key">The key, or that of the set.</param>
    /// <param name="kind">What must hold.</param>
    /// <param name="etag">For <see cref="ConditionKind.EtagEquals"/>.</param>
    /// <param name="value">For <see cref="ConditionKind.ValueEquals"/>, or the member of the set.</param>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded. The request can then only be passed to <see cref="Return"/>.</exception>
    public void AddCondition(ReadOnlySpan<byte> key, ConditionKind kind, Etag etag = default, ReadOnlySpan<byte> value = default)
    {
        ValidateKey(key);
        Invariant.Check(kind is not (ConditionKind.EtagRelates or ConditionKind.ValueRelates or ConditionKind.Range), $"A condition of the kind {kind} was "
            + $"added without what it needs.");
        if (kind is ConditionKind.SetHas or ConditionKind.SetLacks)
            ValidateMember(value);
        _conditions.Append([(byte)kind]);
        _conditions.AppendWithLength(key);
        if (kind == ConditionKind.EtagEquals)
            AppendToConditions(etag);
        else if (kind is ConditionKind.ValueEquals or ConditionKind.SetHas or ConditionKind.SetLacks)
            _conditions.AppendWithLength(value);
        CountCondition();
    }

    /// <summary>Adds the condition that a key exists, and that its etag compares with another one.</summary>
    /// <inheritdoc cref="AddCondition" path="/exception"/>
    public void AddEtagCondition(ReadOnlySpan<byte> key, ConditionRelation relation, Etag etag)
    {
        ValidateKey(key);
        _conditions.Append([(byte)ConditionKind.EtagRelates]);
        _conditions.AppendWithLength(key);
        _conditions.Append([(byte)relation]);
        AppendToConditions(etag);
        CountCondition();
    }

    /// <summary>Adds the condition that a key exists, and that its value compares with another one, byte by byte.</summary>
    /// <inheritdoc cref="AddCondition" path="/exception"/>
    public void AddValueCondition(ReadOnlySpan<byte> key, ConditionRelation relation, ReadOnlySpan<byte> value)
    {
        ValidateKey(key);
        _conditions.Append([(byte)ConditionKind.ValueRelates]);
        _conditions.AppendWithLength(key);
        _conditions.Append([(byte)relation]);
        _conditions.AppendWithLength(value);
        CountCondition();
    }

    /// <summary>
    /// Adds a condition on the keys from one (empty: the first) up to another (empty: to the end). The ranges of a request have at most
    /// <see cref="KvLimits.ConditionKeysMax"/> keys that are read, or it is refused with <see cref="WriteOutcome.RangeTooLarge"/>.
    /// </summary>
    /// <param name="from">The first key.</param>
    /// <param name="to">The end, which is not in the range.</param>
    /// <param name="keys">How many there must be; null if any number will do.</param>
    /// <param name="greatest">Their greatest etag, <see cref="Etag.None"/> without a key; null if any will do.</param>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded, or the range ends before it begins. The request can then only be passed to
    /// <see cref="Return"/>.</exception>
    public void AddRangeCondition(ReadOnlySpan<byte> from, ReadOnlySpan<byte> to, ulong? keys, Etag? greatest)
    {
        ValidateRange(from, to);
        _conditions.Append([(byte)ConditionKind.Range]);
        _conditions.AppendWithLength(from);
        _conditions.AppendWithLength(to);
        _conditions.Append([(byte)((keys is null ? 0 : 1) | (greatest is null ? 0 : 2))]);
        _conditions.AppendNumber(keys ?? 0);
        AppendToConditions(greatest ?? Etag.None);
        _hasRangeCondition = true;
        CountCondition();
    }

    /// <summary>Adds a put. Limits: <see cref="KvLimits"/>.</summary>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded. The request can then only be passed to <see cref="Return"/>.</exception>
    public void Put(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
    {
        ValidateKey(key);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(value.Length, KvLimits.ValueBytesMax);
        Operations.Put(_operations, key, value);
        _puts++;
        HasPut = true;
        CountChange();
    }

    /// <summary>
    /// Adds a put of a key that expires, ends with a session, keeps either as it is, or gets the next number under a prefix. Terms that ask for nothing make it
    /// an ordinary put.
    /// </summary>
    /// <inheritdoc cref="Put(ReadOnlySpan{byte}, ReadOnlySpan{byte})" path="/exception"/>
    public void Put(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, in PutTerms terms)
    {
        if (terms.AreNone)
        {
            Put(key, value);
            return;
        }
        ValidateKey(key);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(value.Length, KvLimits.ValueBytesMax);
        if (terms.IsNumbered)
            ArgumentOutOfRangeException.ThrowIfGreaterThan(key.Length, KvLimits.KeyBytesMax - NumberText.KeyDigits);
        Invariant.Check(!terms.Keeps || !terms.IsNumbered, $"A numbered put keeps nothing, because its key is new.");
        AppendCode(RequestOperation.PutOnTerms);
        _operations.AppendWithLength(key);
        _operations.AppendWithLength(value);
        _operations.AppendNumber(terms.TtlMilliseconds);
        Operations.AppendSession(_operations, terms.Owner);
        _operations.AppendNumber(terms.Flags);
        HasPut = true;
        CountChange();
    }

    /// <summary>Adds an increment of a number. A key that does not exist counts as 0.</summary>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded. The request can then only be passed to <see cref="Return"/>.</exception>
    public void Increment(ReadOnlySpan<byte> key, long by)
    {
        ValidateKey(key);
        AppendCode(RequestOperation.Increment);
        _operations.AppendWithLength(key);
        _operations.AppendNumber(Varint.Fold((ulong)by));
        HasPut = true;
        HasIncrement = true;
        CountChange();
    }

    /// <summary>Adds a new expiry of a key, counted from now. <paramref name="ttlMilliseconds"/>: 0 = it does not expire any more.</summary>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded. The request can then only be passed to <see cref="Return"/>.</exception>
    public void Touch(ReadOnlySpan<byte> key, ulong ttlMilliseconds)
    {
        ValidateKey(key);
        AppendCode(RequestOperation.Touch);
        _operations.AppendWithLength(key);
        _operations.AppendNumber(ttlMilliseconds);
        HasPut = true;
        CountChange();
    }

    /// <summary>Adds a read of a key.</summary>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded. The request can then only be passed to <see cref="Return"/>.</exception>
    public void Get(ReadOnlySpan<byte> key)
    {
        ValidateKey(key);
        AppendCode(RequestOperation.Get);
        _operations.AppendWithLength(key);
        CountRead();
    }

    /// <summary>Adds a read of the keys from one (empty: the first) up to another (empty: to the end).</summary>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded, or the range ends before it begins. The request can then only be passed to
    /// <see cref="Return"/>.</exception>
    public void Scan(ReadOnlySpan<byte> from, ReadOnlySpan<byte> to, int limit, bool keysOnly)
    {
        ValidateRange(from, to);
        ArgumentOutOfRangeException.ThrowIfNegativeOrZero(limit);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(limit, KvLimits.ScanEntriesMax);
        AppendCode(RequestOperation.Scan);
        _operations.AppendWithLength(from);
        _operations.AppendWithLength(to);
        _operations.AppendNumber((ulong)limit);
        _operations.AppendNumber(keysOnly ? 1u : 0);
        CountRead();
        ReadsRange = true;
    }

    /// <summary>Adds a read of a set: how many members it has, and whether it has this one (empty: none is looked for).</summary>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded. The request can then only be passed to <see cref="Return"/>.</exception>
    public void SetGet(ReadOnlySpan<byte> key, ReadOnlySpan<byte> member)
    {
        ValidateKey(key);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(member.Length, KvLimits.MemberBytesMax);
        AppendCode(RequestOperation.SetGet);
        _operations.AppendWithLength(key);
        _operations.AppendWithLength(member);
        CountRead();
    }

    /// <summary>The operations added from here on are applied if a condition does not hold, and those before it if all do. The answer has results.</summary>
    public void BeginFailureList()
    {
        Invariant.Check(!HasFailureList, $"A request has only one failure list.");
        (HasFailureList, WantsResults) = (true, true);
        ValidateSize();
        (_failureAt, _firstCount, _firstChanges) = (_operations.Count, OperationCount, _changes);
    }

    /// <summary>
    /// Adds a put of a key whose life is known: the expiry in shard time, and the etag of the opening of a session that exists. What callers state, a time to
    /// live and the id of a session, is resolved when the request is executed.
    /// </summary>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded. The request can then only be passed to <see cref="Return"/>.</exception>
    public void Put(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value, in KeyLife life)
    {
        ValidateKey(key);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(value.Length, KvLimits.ValueBytesMax);
        Operations.Put(_operations, key, value, life);
        HasPut = true;
        CountChange();
    }

    /// <summary>
    /// Adds a new expiry of a key, in milliseconds of shard time; 0 = never. The key keeps its value and its etag. Nothing changes if it does not exist.
    /// </summary>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded. The request can then only be passed to <see cref="Return"/>.</exception>
    public void TouchUntil(ReadOnlySpan<byte> key, ulong expiryMilliseconds)
    {
        ValidateKey(key);
        Operations.Touch(_operations, key, expiryMilliseconds);
        CountChange();
    }

    /// <summary>Adds a delete, which also succeeds when the key does not exist.</summary>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded. The request can then only be passed to <see cref="Return"/>.</exception>
    public void Delete(ReadOnlySpan<byte> key)
    {
        ValidateKey(key);
        Operations.Delete(_operations, key);
        CountChange();
    }

    /// <summary>
    /// Adds a member to the set of a key, which is made if there is none. Sets and values are apart: a key can have both. Nothing changes if the set has the
    /// member.
    /// </summary>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded. The request can then only be passed to <see cref="Return"/>.</exception>
    public void SetAdd(ReadOnlySpan<byte> key, ReadOnlySpan<byte> member)
    {
        AddMember(OperationCode.SetAdd, key, member);
        HasPut = true;
    }

    /// <summary>Removes a member from the set of a key. Nothing changes if the set does not have it. A set without members is gone.</summary>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded. The request can then only be passed to <see cref="Return"/>.</exception>
    public void SetRemove(ReadOnlySpan<byte> key, ReadOnlySpan<byte> member) => AddMember(OperationCode.SetRemove, key, member);

    /// <summary>
    /// Adds a delete of a set with all its members. Nothing changes if there is no such set. A request that does nothing else deletes as much of a large set as
    /// one record may, from its first member on, and says so (<see cref="WriteResult.IsPartial"/>), unless <see cref="IsWhole"/> is set. It is bounded as a
    /// <see cref="DeleteRange"/> is, by leaves of members.
    /// </summary>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded. The request can then only be passed to <see cref="Return"/>.</exception>
    public void SetDelete(ReadOnlySpan<byte> key)
    {
        ValidateKey(key);
        Operations.SetDelete(_operations, key, default);
        HasRange = true;
        CountChange();
    }

    /// <summary>
    /// Adds a delete of all keys from one (empty: the first) up to another, which stays (empty: to the end). A request that does nothing else deletes as much
    /// of a large range as one record may, from its first key on, and says so (<see cref="WriteResult.IsPartial"/>). With other operations it is
    /// applied as a whole, or refused with <see cref="WriteOutcome.RangeTooLarge"/>. The bounds are <c>StoreOptions.RangeLeavesMax</c> and
    /// <c>StoreOptions.RangeLeavesUnreadMax</c>.
    /// </summary>
    /// <exception cref="ArgumentOutOfRangeException">A limit is exceeded, or the range ends before it begins. The request can then only be passed to
    /// <see cref="Return"/>.</exception>
    public void DeleteRange(ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        ValidateRange(from, to);
        Operations.DeleteRange(_operations, from, to);
        HasRange = true;
        CountChange();
    }

    /// <summary>Whether a client may use these numbers. They start at 1, and no more may be open at once than a session can keep results for.</summary>
    public static bool IsIdentityValid(ulong sequence, ulong lowestOpen) =>
        lowestOpen > 0 && sequence >= lowestOpen && sequence - lowestOpen < SessionTable.OpenRequestsMax && sequence <= SequenceMax;

    /// <summary>
    /// Identifies the request, so that it is applied once, however often it arrives, and always answered with its first result. It is refused with
    /// <see cref="WriteOutcome.SessionExpired"/> if the session is unknown, with <see cref="WriteOutcome.SequenceClosed"/> if the sequence is below the
    /// lowest open one, and with <see cref="WriteOutcome.SequenceReused"/> if another request has its sequence.
    /// </summary>
    /// <exception cref="ArgumentOutOfRangeException">The numbers do not satisfy <see cref="IsIdentityValid"/>.</exception>
    public void Identify(UInt128 session, ulong sequence, ulong lowestOpen)
    {
        if (!IsIdentityValid(sequence, lowestOpen))
            throw new ArgumentOutOfRangeException(nameof(sequence), sequence, "The sequence must not be below the lowest open one, and must be less than "
                + $"{SessionTable.OpenRequestsMax} above it.");
        (Session, Sequence, LowestOpen) = (session, sequence, lowestOpen);
    }

    /// <summary>Makes it a request that opens a session.</summary>
    /// <param name="session">Its id, which must be unguessable: whoever knows it can make changes of the session.</param>
    /// <param name="owner">The owner in whose share of the sessions it counts.</param>
    /// <param name="lifetimeMilliseconds">How long it lives without a KeepAlive; 0 = it has no lifetime, and can own no keys.</param>
    public void OpenSession(UInt128 session, QuotaOwner owner, ulong lifetimeMilliseconds = 0)
    {
        Invariant.Check(OperationCount == 0 && Session == 0, $"A request that already has a session or operations ({OperationCount}) cannot open a session.");
        Operations.SessionOpen(_operations, session, owner, lifetimeMilliseconds);
        (OperationCount, _changes) = (1, 1);
        (OpensSession, Session, Owner, LifetimeMilliseconds) = (true, session, owner, lifetimeMilliseconds);
    }

    /// <summary>
    /// Makes it a request that ends a session and removes its keys; <see cref="WriteResult.Deleted"/> is their number. It is answered
    /// <see cref="WriteOutcome.SessionExpired"/> if there is no such session, and that is a read.
    /// </summary>
    public void EndSession(UInt128 session)
    {
        Invariant.Check(OperationCount == 0 && Session == 0, $"A request that already has a session or operations ({OperationCount}) cannot end a session.");
        Operations.SessionEnd(_operations, session);
        (OperationCount, _changes) = (1, 1);
        (EndsSession, Session) = (true, session);
    }

    /// <summary>
    /// Makes it a request that says of this session, too, that what is recorded to be left of its lifetime does not hold any more. Sessions without such a
    /// record, or that have ended, are left out.
    /// </summary>
    public void KeepSession(UInt128 session)
    {
        Invariant.Check((OperationCount == 0 || KeepsSessions) && Session == 0, $"A request that already has a session or operations ({OperationCount}) cannot "
            + $"keep a session.");
        Operations.SessionLeft(_operations, session, 0);
        (OperationCount, _changes) = (OperationCount + 1, _changes + 1);
        KeepsSessions = true;
    }

    /// <summary>Called by the submitting thread when everything has been added, to keep this work off the writer.</summary>
    internal void ComputeDigest()
    {
        if (Sequence == 0)
            return;
        Digest = BitOperations.Crc32C(Crc32C.Of(_conditions.Written, _operations.Written), (uint)_conditions.Count);
        // The digest covers where the second list begins, and what the answer is to say.
        if (WantsResults || CountsMembers)
            Digest = BitOperations.Crc32C(Digest, ((uint)_failureAt << 3) | (HasFailureList ? 4u : 0) | (CountsMembers ? 2u : 0) | (WantsResults ? 1u : 0));
    }

    /// <summary>
    /// Nobody waits for the outcome any more. If the request is still queued, it is answered <see cref="WriteOutcome.GivenUp"/> at once and never applied.
    /// The request proceeds normally if the writer has taken it, or if the queue already holds as many given-up requests as it may. Any thread, at any time,
    /// even long after the request was answered. The continuation runs on another thread.
    /// </summary>
    /// <param name="life">The value of <see cref="Life"/> before the request was submitted.</param>
    public void GiveUp(long life)
    {
        // The queue may be that of a later rental; the comparison below detects that.
        if (_queue is not { } queue || !queue.TryReserveGivenUp())
            return;
        if (Interlocked.CompareExchange(ref _life, life | GivenUp, life | Queued) != (life | Queued))
        {
            queue.ReleaseGivenUp();
            return;
        }
        queue.GaveUp(Bytes);
        // The object stays in the queue until its turn. Its buffers no longer count towards the queue's bound, so they are released now.
        _conditions.Clear(0);
        _operations.Clear(OperationBytesMin);
        Result = WriteResult.Of(WriteOutcome.GivenUp);
        NextAnswer = null;
        if (IsAwaitedByThread)
            Execute();
        else
            ThreadPool.UnsafeQueueUserWorkItem(this, preferLocal: false);
    }

    /// <summary>Called just before the request is added to a queue.</summary>
    internal void Enqueue(RequestQueue queue)
    {
        _queue = queue;
        Volatile.Write(ref _life, Life | Queued);
    }

    /// <summary>
    /// Called when the writer takes the request out of the queue. False: it was given up there, is already answered, and must not be touched any more.
    /// </summary>
    internal bool TryTake()
    {
        var queued = Life | Queued;
        if (Interlocked.CompareExchange(ref _life, queued + (Taken - Queued), queued) == queued)
            return true;
        ReleaseGivenUp();
        return false;
    }

    // Called by the queue and by whoever awaits the answer, in either order. The second call returns the request to the pool.
    private void ReleaseGivenUp()
    {
        if (Interlocked.Increment(ref _releases) == 2)
            Return();
    }

    /// <summary>Returns to the pool a request that was never submitted, or whose submission was refused.</summary>
    public void Return()
    {
        (_releases, _queue) = (0, null);
        Volatile.Write(ref _life, Life + OneLife);
        _conditions.Clear(PooledBytesMax);
        (OperationCount, _puts, _changes, _firstChanges, _firstCount, _failureAt) = (0, 0, 0, 0, 0, 0);
        (HasPut, HasRange, IsWhole, HasIncrement, ReadsRange, _isDependent) = (false, false, false, false, false, false);
        (_conditionCount, _hasRangeCondition, PrefetchNumber, WorkNumber, IsAwaitedByThread) = (0, false, 0, 0, false);
        (HasFailureList, WantsResults, CountsMembers, LeavesOutUnchanged) = (false, false, false, false);
        (OpensSession, EndsSession, KeepsSessions, LifetimeMilliseconds, Owner, Digest) = (false, false, false, 0, default, 0);
        (Session, Sequence, LowestOpen) = (0, 0, 0);
        (ReleaseEtag, IsReadAnswer) = (Etag.None, false);
        (DeadlineTimestamp, ArrivedTimestamp, Trace) = (0, 0, null);
        NextAnswer = null;
        Result = default;
        _core.Reset();
        if (TryReturnLarge())
            return;
        _operations.Clear(PooledBytesMax);
        if (Interlocked.Increment(ref _pooled) <= PooledMax)
            Pool.Enqueue(this);
        else
            Interlocked.Decrement(ref _pooled);
    }

    private bool TryReturnLarge()
    {
        // Only a caller that announces a large request takes from that pool.
        var bytes = _operations.Capacity;
        if (!_isLarge || bytes <= PooledBytesMax)
            return false;
        if (Interlocked.Add(ref _largePooledBytes, bytes) > LargePooledBytesMax)
        {
            Interlocked.Add(ref _largePooledBytes, -bytes);
            return false;
        }
        _operations.Clear(bytes);
        LargePool.Enqueue(this);
        return true;
    }

    /// <summary>Runs the continuations of this request and of those chained to it.</summary>
    public void Execute()
    {
        for (var request = this; request is not null;)
        {
            // Read first: once the result is set, the caller may return the request and another may rent it.
            var next = request.NextAnswer;
            request._core.SetResult(request.Result);
            request = next;
        }
    }

    WriteResult IValueTaskSource<WriteResult>.GetResult(short token)
    {
        var result = _core.GetResult(token);
        if (Volatile.Read(ref _life) == (Life | GivenUp))
            ReleaseGivenUp();
        else
            Return();
        return result;
    }

    ValueTaskSourceStatus IValueTaskSource<WriteResult>.GetStatus(short token) => _core.GetStatus(token);

    void IValueTaskSource<WriteResult>.OnCompleted(
        Action<object?> continuation, object? state, short token, ValueTaskSourceOnCompletedFlags flags) =>
        _core.OnCompleted(continuation, state, token, flags);

    private void AddMember(OperationCode code, ReadOnlySpan<byte> key, ReadOnlySpan<byte> member)
    {
        ValidateKey(key);
        ValidateMember(member);
        Operations.SetMember(_operations, code, key, member);
        CountChange();
    }

    private void AppendCode(RequestOperation code)
    {
        _operations.Append([(byte)code]);
        _isDependent = true;
    }

    private void AppendToConditions(Etag etag)
    {
        etag.WriteTo(_conditions.Reserve(Etag.ByteLength));
        _conditions.Advance(Etag.ByteLength);
    }

    private void CountCondition()
    {
        _conditionCount++;
        ValidateSize();
    }

    private void CountChange()
    {
        _changes++;
        CountRead();
    }

    private void CountRead()
    {
        OperationCount++;
        ValidateSize();
    }

    private static void ValidateRange(ReadOnlySpan<byte> from, ReadOnlySpan<byte> to)
    {
        ArgumentOutOfRangeException.ThrowIfGreaterThan(from.Length, KvLimits.KeyBytesMax);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(to.Length, KvLimits.KeyBytesMax);
        if (!to.IsEmpty && from.SequenceCompareTo(to) > 0)
            throw new ArgumentOutOfRangeException(nameof(to), "The range ends before it begins.");
    }

    private static void ValidateMember(ReadOnlySpan<byte> member)
    {
        ArgumentOutOfRangeException.ThrowIfZero(member.Length);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(member.Length, KvLimits.MemberBytesMax);
    }

    private static void ValidateKey(ReadOnlySpan<byte> key)
    {
        ArgumentOutOfRangeException.ThrowIfZero(key.Length);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(key.Length, KvLimits.KeyBytesMax);
    }

    private void ValidateSize()
    {
        ArgumentOutOfRangeException.ThrowIfGreaterThan(ListCount, WantsResults || HasIncrement ? KvLimits.ResultsMax : KvLimits.KeysMax);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(Bytes, KvLimits.WriteBytesMax);
    }
}

/// <summary>A list of operations of a <see cref="WriteRequest"/>.</summary>
/// <param name="encoded">For <see cref="RequestReader"/>.</param>
/// <param name="count">How many there are.</param>
/// <param name="changes">How many do more than read.</param>
internal readonly ref struct RequestOperations(ReadOnlySpan<byte> encoded, int count, int changes)
{
    /// <summary>The operations, for <see cref="RequestReader"/>.</summary>
    public ReadOnlySpan<byte> Encoded { get; } = encoded;

    /// <summary>How many there are.</summary>
    public int Count { get; } = count;

    /// <summary>How many do more than read.</summary>
    public int Changes { get; } = changes;
}
