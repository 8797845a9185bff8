using System.Buffers.Binary;
using System.Collections.Concurrent;
using System.Numerics;
using System.Threading.Tasks.Sources;
using KvCluster.Storage.Context;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// One caller's conditions and operations, applied as a whole or not at all. Rented, filled and awaited by the caller's thread; between
/// <c>ReplicaStore.TrySubmit</c> and its answer it belongs to the store. The continuation runs on the completions executor or
/// the thread pool, never on the writer. Awaiting <see cref="Completion"/> gives the request back to the pool.
/// </summary>
internal sealed class WriteRequest : IValueTaskSource<WriteResult>, IThreadPoolWorkItem, IWorkItem
{
    /// <summary>Longest key in bytes.</summary>
    public const int KeyBytesMax = 2048;

    /// <summary>Longest value in bytes.</summary>
    public const int ValueBytesMax = 8 << 20;

    /// <summary>Longest request in bytes of encoded operations and conditions.</summary>
    public const int BytesMax = 16 << 20;

    /// <summary>Most operations in a request.</summary>
    public const int OperationCountMax = 10_000;

    /// <summary>Greatest sequence of a session: a client that counts from 1 never comes to it.</summary>
    public const ulong SequenceMax = long.MaxValue;

    // Where a request is on its way, 0 outside the store. With the number of its life, which no two rentals share, in one word: a caller may give up when it has long been
    // answered and is another's.
    private const long Queued = 1;
    private const long Taken = 2;
    private const long GivenUp = 3;
    private const long OneLife = 4;

    private const int OperationBytesLeast = 256;
    private const int PooledMax = 8_192;
    private const int PooledBytesMax = 64 << 10;
    private static readonly ConcurrentQueue<WriteRequest> Pool = new();
    private static int _pooled;
    private readonly ByteBuffer _conditions = new(0);
    private readonly ByteBuffer _operations = new(OperationBytesLeast);
    private ManualResetValueTaskSourceCore<WriteResult> _core;
    private long _life;
    private int _releases;
    private RequestQueue? _queue;

    private WriteRequest()
    {
    }

    /// <summary>Timestamp of the store's <see cref="TimeProvider"/> after which it is not applied any more; 0 = none.</summary>
    public long DeadlineTimestamp { get; set; }

    /// <summary>Timestamp of the same clock at which it came, for who measures; 0 = not known.</summary>
    public long ArrivedTimestamp { get; set; }

    /// <summary>The trace that follows it, for <see cref="StoreObserver"/>; null = none does.</summary>
    public object? Trace { get; set; }

    /// <summary>The answer. To be awaited once; the request must not be touched afterwards.</summary>
    public ValueTask<WriteResult> Completion => new(this, _core.Version);

    /// <summary>For <see cref="GiveUp"/>: names this rental of the object. To be read before the request is submitted.</summary>
    public long Life => Volatile.Read(ref _life) & -OneLife;

    /// <summary>Bytes that count towards the queue's bound.</summary>
    public int Bytes => _conditions.Count + _operations.Count;

    /// <summary>Operations added.</summary>
    public int OperationCount { get; private set; }

    /// <summary>Whether there is a put among the operations.</summary>
    public bool HasPut { get; private set; }

    /// <summary>The session that the request is identified in, or that it opens; 0 = neither.</summary>
    public UInt128 Session { get; private set; }

    /// <summary>The request's number in its session.</summary>
    public ulong Sequence { get; private set; }

    /// <summary>Requests of the session below this one are settled, says its client.</summary>
    public ulong LowestOpen { get; private set; }

    /// <summary>Whether it opens a session, and does nothing else.</summary>
    public bool OpensSession { get; private set; }

    /// <summary>Who opens it.</summary>
    public SessionOwner Owner { get; private set; }

    /// <summary>Of an identified request: a checksum of its conditions and operations, by which its repetitions are known from other requests.</summary>
    internal uint Digest { get; private set; }

    /// <summary>The operations as a record's payload holds them.</summary>
    internal ReadOnlySpan<byte> EncodedOperations => _operations.Written;

    /// <summary>The conditions as <see cref="ConditionReader"/> reads them.</summary>
    internal ReadOnlySpan<byte> EncodedConditions => _conditions.Written;

    /// <summary>The next request of an <see cref="AnswerChain"/>.</summary>
    internal WriteRequest? NextAnswer { get; set; }

    /// <summary>What it is answered with once the answer may leave.</summary>
    internal WriteResult Result { get; set; }

    /// <summary>The answer may leave when a state with this etag, or a newer one, is published.</summary>
    internal UInt128 ReleaseEtag { get; set; }

    /// <summary>The answer says something of a state and is in no record: only a leader that is sure to be one may give it.</summary>
    internal bool IsReadAnswer { get; set; }

    /// <summary>An empty request.</summary>
    public static WriteRequest Rent()
    {
        if (!Pool.TryDequeue(out var request))
            return new WriteRequest();
        Interlocked.Decrement(ref _pooled);
        return request;
    }

    /// <summary>Adds a condition. Conditions are evaluated in order; the first that does not hold is named in the answer.</summary>
    public void AddCondition(ReadOnlySpan<byte> key, ConditionKind kind, UInt128 etag = default, ReadOnlySpan<byte> value = default)
    {
        ValidateKey(key);
        _conditions.Append([(byte)kind]);
        _conditions.AppendWithLength(key);
        if (kind == ConditionKind.EtagEquals)
        {
            BinaryPrimitives.WriteUInt128LittleEndian(_conditions.Reserve(16), etag);
            _conditions.Advance(16);
        }
        else if (kind == ConditionKind.ValueEquals)
        {
            _conditions.AppendWithLength(value);
        }
        ValidateSize();
    }

    /// <summary>Adds a put. Limits: <see cref="KeyBytesMax"/>, <see cref="ValueBytesMax"/>, <see cref="BytesMax"/>, <see cref="OperationCountMax"/>.</summary>
    /// <exception cref="ArgumentOutOfRangeException">Beyond a limit; the request is only good for <see cref="Return"/> then.</exception>
    public void Put(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
    {
        ValidateKey(key);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(value.Length, ValueBytesMax);
        Operations.Put(_operations, key, value);
        OperationCount++;
        HasPut = true;
        ValidateSize();
    }

    /// <summary>Adds a delete, which also succeeds when the key is not there.</summary>
    /// <exception cref="ArgumentOutOfRangeException">Beyond a limit; the request is only good for <see cref="Return"/> then.</exception>
    public void Delete(ReadOnlySpan<byte> key)
    {
        ValidateKey(key);
        Operations.Delete(_operations, key);
        OperationCount++;
        ValidateSize();
    }

    /// <summary>Whether a client may use these numbers: counted from 1, and no more open at once than a session's results have room for.</summary>
    public static bool IsIdentityValid(ulong sequence, ulong lowestOpen) =>
        lowestOpen > 0 && sequence >= lowestOpen && sequence - lowestOpen < SessionTable.OpenRequestsMax && sequence <= SequenceMax;

    /// <summary>
    /// Identifies the request: it is applied once, however often it comes, and answered with its first result. Of an unknown session it is
    /// refused with <see cref="WriteOutcome.SessionExpired"/>, below the lowest open sequence with <see cref="WriteOutcome.SequenceClosed"/>, and where another
    /// request has its sequence with <see cref="WriteOutcome.SequenceReused"/>.
    /// </summary>
    /// <exception cref="ArgumentOutOfRangeException">See <see cref="IsIdentityValid"/>.</exception>
    public void Identify(UInt128 session, ulong sequence, ulong lowestOpen)
    {
        if (!IsIdentityValid(sequence, lowestOpen))
            throw new ArgumentOutOfRangeException(nameof(sequence), sequence, $"A sequence lies within {SessionTable.OpenRequestsMax} of the lowest open one.");
        (Session, Sequence, LowestOpen) = (session, sequence, lowestOpen);
    }

    /// <summary>Makes it a request that opens a session.</summary>
    /// <param name="session">Its id, which nobody can guess: whoever knows it can make changes of the session.</param>
    /// <param name="owner">Whose share of the sessions it counts towards.</param>
    public void OpenSession(UInt128 session, SessionOwner owner)
    {
        Invariant.Check(OperationCount == 0 && Session == 0, $"A session is opened by a request with {OperationCount} operations besides.");
        Operations.SessionOpen(_operations, session, owner);
        OperationCount = 1;
        (OpensSession, Session, Owner) = (true, session, owner);
    }

    /// <summary>To be called when all is added, by whoever hands it over: a writer that serves many has better things to do.</summary>
    internal void Complete()
    {
        if (Sequence != 0)
            Digest = BitOperations.Crc32C(Crc32C.Of(_conditions.Written, _operations.Written), (uint)_conditions.Count);
    }

    /// <summary>
    /// Nobody waits for the outcome any more: a request that is in the queue is answered <see cref="WriteOutcome.GivenUp"/> at once, and never applied. One that the
    /// writer has taken goes its way, and so does one for which the queue has no room among those that were given up. Any thread, at any time, also when it was answered long ago;
    /// the continuation runs elsewhere.
    /// </summary>
    /// <param name="life">What <see cref="Life"/> was before it was submitted.</param>
    public void GiveUp(long life)
    {
        // Perhaps of another life, of which the next comparison tells.
        if (_queue is not { } queue || !queue.TryReserveGivenUp())
            return;
        if (Interlocked.CompareExchange(ref _life, life | GivenUp, life | Queued) != (life | Queued))
        {
            queue.ReleaseGivenUp();
            return;
        }
        queue.GaveUp(Bytes);
        // The object stays in the queue until its turn comes. Nobody counts what it was to write any more, so that goes now.
        _conditions.Clear(0);
        _operations.Clear(OperationBytesLeast);
        Result = WriteResult.Of(WriteOutcome.GivenUp);
        NextAnswer = null;
        ThreadPool.UnsafeQueueUserWorkItem(this, preferLocal: false);
    }

    /// <summary>It is about to be added to a queue.</summary>
    internal void Enqueue(RequestQueue queue)
    {
        _queue = queue;
        Volatile.Write(ref _life, Life | Queued);
    }

    /// <summary>The writer takes it out of the queue. False: it was given up there, is answered, and must not be touched any more.</summary>
    internal bool TryTake()
    {
        var queued = Life | Queued;
        if (Interlocked.CompareExchange(ref _life, queued + (Taken - Queued), queued) == queued)
            return true;
        ReleaseGivenUp();
        return false;
    }

    // By the queue and by who awaits the answer, in any order: the second gives it back.
    private void ReleaseGivenUp()
    {
        if (Interlocked.Increment(ref _releases) == 2)
            Return();
    }

    /// <summary>Gives back a request that was never submitted, or whose submission was refused.</summary>
    public void Return()
    {
        (_releases, _queue) = (0, null);
        Volatile.Write(ref _life, Life + OneLife);
        _conditions.Clear(PooledBytesMax);
        _operations.Clear(PooledBytesMax);
        OperationCount = 0;
        HasPut = false;
        (OpensSession, Owner, Digest) = (false, default, 0);
        (Session, Sequence, LowestOpen) = (0, 0, 0);
        (ReleaseEtag, IsReadAnswer) = (0, false);
        (DeadlineTimestamp, ArrivedTimestamp, Trace) = (0, 0, null);
        NextAnswer = null;
        Result = default;
        _core.Reset();
        if (Interlocked.Increment(ref _pooled) <= PooledMax)
            Pool.Enqueue(this);
        else
            Interlocked.Decrement(ref _pooled);
    }

    /// <summary>Runs the continuations of this request and those chained to it.</summary>
    public void Execute()
    {
        for (var request = this; request is not null;)
        {
            // Its caller may have given it back, and another rented it, once the result is set.
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

    private static void ValidateKey(ReadOnlySpan<byte> key)
    {
        ArgumentOutOfRangeException.ThrowIfZero(key.Length);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(key.Length, KeyBytesMax);
    }

    private void ValidateSize()
    {
        ArgumentOutOfRangeException.ThrowIfGreaterThan(OperationCount, OperationCountMax);
        ArgumentOutOfRangeException.ThrowIfGreaterThan(Bytes, BytesMax);
    }
}
