using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Applies the operations of one request, one after the other, so that each sees what those before it did. What depends on the state or the time becomes an
/// operation that does not, which is appended to the record's payload (S7); what would change nothing in a set is left out; reads are answered. That all can be
/// applied was decided before (<see cref="RequestCheck"/>). Used by <see cref="MergedTransaction"/>; writer executor.
/// </summary>
internal ref struct RequestExecution
{
    private readonly WriteBatch _batch;
    private readonly ByteBuffer _payload;
    private readonly OperationResults? _results;
    private readonly int _resultBytesMax;
    private readonly Etag _etagFirst;
    private readonly long _shardTime;
    private readonly ref Etag _next;
    private readonly ref int _operationCount;

    /// <summary>The bytes of the payload that the batch has.</summary>
    private int _applied;

    /// <param name="batch">The newest state.</param>
    /// <param name="payload">Gets the operations for the record. What it has already is applied.</param>
    /// <param name="results">Gets the results; null if none are wanted.</param>
    /// <param name="resultBytesMax">The bound of the results.</param>
    /// <param name="etagFirst">The etag of the record's first change.</param>
    /// <param name="shardTime">The record's shard time.</param>
    /// <param name="next">The etag of the next operation; advanced.</param>
    /// <param name="operationCount">Operations that took a change; advanced.</param>
    public RequestExecution(
        WriteBatch batch, ByteBuffer payload, OperationResults? results, int resultBytesMax, Etag etagFirst, long shardTime,
        ref Etag next, ref int operationCount)
    {
        (_batch, _payload, _results, _resultBytesMax, _etagFirst, _shardTime) = (batch, payload, results, resultBytesMax, etagFirst, shardTime);
        _next = ref next;
        _operationCount = ref operationCount;
        _applied = payload.Count;
    }

    /// <summary>Keys that were removed.</summary>
    public ulong KeysDeleted { get; private set; }

    /// <summary>Members that were added to sets or removed from them.</summary>
    public ulong MembersChanged { get; private set; }

    /// <summary>Applies the operations. False if they read more than they may, in which case they change nothing.</summary>
    /// <param name="operations">What is to be applied.</param>
    /// <param name="part">Where the part ends of the only operation, if that is a range or a set of which only a part is deleted; empty if it is not.</param>
    public bool Run(RequestOperations operations, ReadOnlySpan<byte> part)
    {
        for (var reader = new RequestReader(operations.Encoded); reader.MoveNext();)
        {
            switch (reader.Code)
            {
                case RequestOperation.Put:
                    _payload.Append(reader.Encoded);
                    AddResult();
                    break;
                case RequestOperation.PutOnTerms:
                    Put(reader);
                    break;
                case RequestOperation.Delete:
                    Delete(reader);
                    break;
                case RequestOperation.DeleteRange:
                    DeleteRange(reader, part);
                    break;
                case RequestOperation.Increment:
                    Increment(reader);
                    break;
                case RequestOperation.Touch:
                    Touch(reader);
                    break;
                case RequestOperation.SetAdd or RequestOperation.SetRemove:
                    ChangeMember(reader);
                    break;
                case RequestOperation.SetDelete:
                    DeleteSet(reader, part);
                    break;
                default:
                    Read(reader);
                    break;
            }
            if (_results?.Bytes > _resultBytesMax)
            {
                Invariant.Check(operations.Changes == 0, $"The results of a request that changes something have {_results.Bytes} bytes, and were thought to "
                    + $"have no more than {_resultBytesMax}.");
                return false;
            }
        }
        KeysDeleted += Settle();
        return true;
    }

    // Rounded up, so that no part of a millisecond is taken from a life.
    private readonly ulong ShardTimeMilliseconds => (ulong)Math.Max(0, (_shardTime + 999) / 1_000);

    /// <summary>Applies what was appended, and returns how many keys it has deleted, or members with their sets.</summary>
    private ulong Settle()
    {
        if (_payload.Count == _applied)
            return 0;
        var deleted = RecordApplier.ApplyOperations(_batch, _payload.Written[_applied..], _etagFirst, _shardTime, ref _next, ref _operationCount);
        _applied = _payload.Count;
        return deleted;
    }

    /// <summary>Applies the operation that was appended, if it has a result, and adds that. Without results, many operations are applied at once.</summary>
    private void AddResult(bool? existed = null, long? number = null)
    {
        if (_results is null)
            return;
        KeysDeleted += Settle();
        _results.Add(_next.Predecessor, existed, number);
    }

    private void Put(in RequestReader put)
    {
        var terms = put.Terms;
        var owner = Etag.None;
        if (terms.Owner != 0)
            Invariant.Check(SessionTable.TryFindOwner(_batch, terms.Owner, out owner), $"The session that is to own a key has ended since it was looked for.");
        var life = new KeyLife(terms.TtlMilliseconds == 0 ? 0 : ExpiryIn(terms.TtlMilliseconds), owner);
        if (terms.Keeps)
        {
            var kept = LifeOf(put.Key);
            life = new KeyLife(terms.KeepsExpiry ? kept.ExpiryMilliseconds : life.ExpiryMilliseconds, terms.KeepsOwner ? kept.Owner : life.Owner);
        }
        if (!terms.IsNumbered)
        {
            Operations.Put(_payload, put.Key, put.Value, life);
            AddResult();
            return;
        }
        // The last number is read from the state, so all operations before this one in the request have to be applied first.
        KeysDeleted += Settle();
        Span<byte> key = stackalloc byte[KvLimits.KeyBytesMax];
        key = key[..NumberText.WriteKey(key, put.Key, checked(KeyNumbers.Last(_batch, put.Key) + 1))];
        Operations.Put(_payload, key, put.Value, life, OperationCode.PutNumbered);
        KeysDeleted += Settle();
        _results?.AddEntry(key, default, _next.Predecessor);
        _results?.Add(_next.Predecessor);
    }

    /// <summary>The life of a key after the operations before this one; unlimited if it does not exist.</summary>
    private KeyLife LifeOf(ReadOnlySpan<byte> key)
    {
        KeysDeleted += Settle();
        var life = default(KeyLife);
        if (_batch.TryGetBeginning(TreeId.Kv, key, KvValue.HeaderBytesMax, out var stored))
            _ = KvValue.Read(stored, out _, out life);
        return life;
    }

    private readonly ulong ExpiryIn(ulong ttlMilliseconds) => ShardTimeMilliseconds + Math.Min(ttlMilliseconds, KvLimits.TtlMillisecondsMax);

    private void Delete(in RequestReader delete)
    {
        _payload.Append(delete.Encoded);
        if (_results is null)
            return;
        var deleted = Settle();
        KeysDeleted += deleted;
        _results.Add(_next.Predecessor, existed: deleted > 0);
    }

    private void DeleteRange(in RequestReader delete, ReadOnlySpan<byte> part)
    {
        if (part.IsEmpty)
            _payload.Append(delete.Encoded);
        else
            Operations.DeleteRange(_payload, delete.Key, part);
        if (_results is null)
            return;
        var deleted = Settle();
        KeysDeleted += deleted;
        if (!part.IsEmpty)
            _results.AddEntry(part, default, default);
        _results.Add(_next.Predecessor, number: (long)deleted, more: !part.IsEmpty);
    }

    private void Increment(in RequestReader increment)
    {
        KeysDeleted += Settle();
        var (number, life) = (0L, default(KeyLife));
        if (_batch.TryGet(TreeId.Kv, increment.Key, out var stored))
            Invariant.Check(NumberText.TryRead(KvValue.Read(stored, out _, out life), out number), $"A value is no number any more since it was looked at.");
        number = checked(number + increment.By);
        Span<byte> text = stackalloc byte[NumberText.ValueBytesMax];
        Operations.Put(_payload, increment.Key, text[..NumberText.Write(text, number)], life);
        AddResult(number: number);
    }

    private void Touch(in RequestReader touch)
    {
        // An earlier operation of the request may have made the key. The touch of an absent key is not recorded, so watchers do not see it.
        KeysDeleted += Settle();
        if (!_batch.TryGetLength(TreeId.Kv, touch.Key, out _))
        {
            _results?.Add(Etag.None, existed: false);
            return;
        }
        Operations.Touch(_payload, touch.Key, touch.TtlMilliseconds == 0 ? 0 : ExpiryIn(touch.TtlMilliseconds));
        AddResult(existed: true);
    }

    private void ChangeMember(in RequestReader change)
    {
        KeysDeleted += Settle();
        var had = _batch.TryGetSet(change.Key, out var set) && set.Contains(change.Member);
        var etag = Etag.None;
        if (had != (change.Code == RequestOperation.SetAdd))
        {
            _payload.Append(change.Encoded);
            Settle();
            etag = _next.Predecessor;
            MembersChanged++;
        }
        _results?.Add(etag, had, CountOf(change.Key));
    }

    private void DeleteSet(in RequestReader delete, ReadOnlySpan<byte> part)
    {
        KeysDeleted += Settle();
        var etag = Etag.None;
        if (_batch.TryGetSet(delete.Key, out _))
        {
            Operations.SetDelete(_payload, delete.Key, part);
            MembersChanged += Settle();
            etag = _next.Predecessor;
        }
        _results?.Add(etag, number: CountOf(delete.Key), more: !part.IsEmpty);
    }

    private readonly long CountOf(ReadOnlySpan<byte> set) => _batch.TryGetSet(set, out var stored) ? (long)stored.Count : 0;

    private void Read(in RequestReader read)
    {
        if (_results is null)
            return;
        KeysDeleted += Settle();
        switch (read.Code)
        {
            case RequestOperation.Get:
                if (_batch.TryGet(TreeId.Kv, read.Key, out var stored))
                    _results.AddEntry(read.Key, KvValue.Read(stored, out var etag), etag);
                _results.Add();
                break;
            case RequestOperation.Scan:
                Scan(read, _results);
                break;
            case RequestOperation.SetGet:
                var exists = _batch.TryGetSet(read.Key, out var set);
                _results.Add(existed: read.Member.IsEmpty ? null : exists && set.Contains(read.Member), number: exists ? (long)set.Count : 0);
                break;
            default:
                throw new InvalidOperationException($"A request has an operation of code {(byte)read.Code}.");
        }
    }

    private readonly void Scan(in RequestReader scan, OperationResults results)
    {
        var left = scan.Limit;
        var more = false;
        using var cursor = _batch.Cursor(TreeId.Kv, scan.Key, scan.KeyEnd);
        while (results.Bytes <= _resultBytesMax && cursor.MoveNext())
        {
            if (left-- == 0)
            {
                more = true;
                break;
            }
            var value = KvValue.Read(scan.KeysOnly ? cursor.Beginning(KvValue.HeaderBytesMax) : cursor.Value, out var etag);
            results.AddEntry(cursor.Key, scan.KeysOnly ? default : value, etag);
        }
        results.Add(more: more);
    }
}
