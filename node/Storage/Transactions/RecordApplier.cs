using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// The only code through which records change the trees, on leaders and followers and in recovery (S7). Each
/// operation gets the next etag; the first one of a batch comes from <c>GroupCommit</c>. Writer executor, or the opening thread. An
/// exception stops the replica.
/// </summary>
internal static class RecordApplier
{
    /// <summary>Applies a whole record. A tool may leave out what it does to sessions, after the tree of the sessions was lost.</summary>
    /// <param name="batch">The batch to change.</param>
    /// <param name="body">The record's body.</param>
    /// <param name="gathered">Gets changes that may be applied together with those of later records, which the caller does then. Null: none.</param>
    /// <param name="hasSessions">Whether the batch has the tree of the sessions.</param>
    public static void Apply(WriteBatch batch, ReadOnlySpan<byte> body, GatheredChanges? gathered = null, bool hasSessions = true)
    {
        var first = new Etag(RecordBody.Epoch(body), RecordBody.FirstChange(body));
        var shardTime = RecordBody.ShardTimeMicroseconds(body);
        var (change, count) = (first, 0);
        using var payload = new RecordPayload(body);
        ApplyOperations(batch, payload.Operations, first, shardTime, ref change, ref count, gathered, hasSessions);
        if (gathered is { IsFull: true })
            gathered.ApplyTo(batch);
        if (count != RecordBody.OperationCount(body) || RecordBody.LastChange(body) - RecordBody.FirstChange(body) != (ulong)Math.Max(count, 1) - 1)
            throw new UnreadableRecordException(
                $"Record {EtagText.Of(new Etag(first.Epoch, RecordBody.LastChange(body)))} has {count} operations, which does not match its header.");
        batch.ShardTime = shardTime;
        batch.WallTime = Math.Max(batch.WallTime, RecordBody.WallTimeMicroseconds(body));
    }

    /// <summary>
    /// Applies encoded operations. Each takes one change, except results, which take none. Returns the number of keys that were deleted, and of members that
    /// went with their set.
    /// </summary>
    /// <param name="batch">The batch to change.</param>
    /// <param name="operations">The operations.</param>
    /// <param name="etagFirst">The etag of the record's first change, relative to which results are encoded.</param>
    /// <param name="shardTime">The record's shard time.</param>
    /// <param name="nextChange">The etag of the next operation; advanced.</param>
    /// <param name="count">Operations that took a change; advanced.</param>
    /// <param name="gathered">Gets puts and deletes of keys without lives, which then do not count as deleted; null: they are applied at once.</param>
    /// <param name="hasSessions">Whether the batch has the tree of the sessions. Without it, operations on sessions only take their changes.</param>
    public static ulong ApplyOperations(
        WriteBatch batch, ReadOnlySpan<byte> operations, Etag etagFirst, long shardTime, ref Etag nextChange, ref int count,
        GatheredChanges? gathered = null, bool hasSessions = true)
    {
        var deleted = 0ul;
        // Where no key has a life, puts and deletes do not look at what they replace.
        var hasLives = KeyLives.Any(batch);
        Span<byte> header = stackalloc byte[KvValue.HeaderBytesMax];
        scoped var reader = new OperationReader(operations);
        for (var more = reader.MoveNext(); more; more = reader.MoveNext())
        {
            if (gathered is not null && !hasLives && TryGather(gathered, reader, nextChange))
            {
                nextChange++;
                count++;
                continue;
            }
            // Results change nothing but sessions. All else may read what was gathered.
            if (gathered is not null && reader.Code != OperationCode.Results)
                gathered.ApplyTo(batch);
            if (!hasLives && Puts.Has(reader))
            {
                var puts = new Puts(reader, header, ref nextChange, ref count);
                batch.PutAll(TreeId.Kv, ref puts);
                reader = puts.Reader;
                if (puts.IsAtEnd)
                    break;
            }
            switch (reader.Code)
            {
                case OperationCode.Put:
                    KeyLives.Put(batch, reader.Key, reader.Value, nextChange, reader.Life);
                    hasLives = true;
                    break;
                case OperationCode.PutNumbered:
                    KeyLives.Put(batch, reader.Key, reader.Value, nextChange, reader.Life);
                    KeyNumbers.Count(batch, reader.Key);
                    hasLives |= !reader.Life.IsUnlimited;
                    break;
                case OperationCode.Delete or OperationCode.DeleteOwned:
                    deleted += (hasLives ? KeyLives.Delete(batch, reader.Key) : batch.Delete(TreeId.Kv, reader.Key)) ? 1u : 0;
                    break;
                case OperationCode.Touch:
                    KeyLives.Touch(batch, reader.Key, reader.ExpiryMilliseconds);
                    hasLives |= reader.ExpiryMilliseconds != 0;
                    break;
                case OperationCode.Expire:
                    deleted += KeyLives.Expire(batch, reader.Key, reader.ExpiryMilliseconds, reader.Etag) ? 1u : 0;
                    break;
                case OperationCode.ForgetExpiry:
                    ExpiryIndex.Remove(batch, reader.ExpiryMilliseconds, reader.Etag);
                    break;
                case OperationCode.ForgetOwned:
                    OwnedKeys.Forget(batch, reader.Opened, reader.Etag);
                    break;
                case OperationCode.DeleteRange:
                    deleted += batch.DeleteRange(TreeId.Kv, reader.Key, reader.KeyEnd);
                    break;
                case OperationCode.SetAdd:
                    batch.SetAdd(reader.Key, reader.Member, nextChange);
                    break;
                case OperationCode.SetRemove:
                    batch.SetRemove(reader.Key, reader.Member, nextChange);
                    break;
                case OperationCode.SetDelete:
                    deleted += batch.SetDelete(reader.Key, reader.Member, nextChange);
                    break;
                case OperationCode.SessionOpen or OperationCode.SessionEnd or OperationCode.SessionLeft when !hasSessions:
                    break;
                case OperationCode.Results when !hasSessions:
                    continue;
                case OperationCode.SessionOpen:
                    SessionTable.Open(batch, reader.Session, reader.Owner, reader.LifetimeMilliseconds, nextChange, shardTime);
                    break;
                case OperationCode.SessionEnd:
                    SessionTable.End(batch, reader.Session);
                    break;
                case OperationCode.SessionLeft:
                    SessionTable.SetLeft(batch, reader.Session, reader.LeftMilliseconds);
                    break;
                case OperationCode.Results:
                    SessionTable.Apply(batch, reader.Results, etagFirst, shardTime);
                    continue;
                default:
                    throw new UnreadableRecordException($"Operation {reader.Code} cannot be applied.");
            }
            nextChange++;
            count++;
        }
        return deleted;
    }

    private static bool TryGather(GatheredChanges gathered, in OperationReader reader, Etag etag)
    {
        if (Puts.Has(reader))
            gathered.Put(reader.Key, reader.Value, etag);
        else if (reader.Code is OperationCode.Delete or OperationCode.DeleteOwned)
            gathered.Delete(reader.Key);
        else
            return false;
        return true;
    }

    /// <summary>
    /// Puts of a record without lives, one after the other, up to another operation. The header of each value is written when the reader comes to it.
    /// </summary>
    private ref struct Puts : IPutSource
    {
        private OperationReader _reader;
        private readonly ref Etag _nextChange;
        private readonly ref int _count;
        private readonly Span<byte> _header;
        private int _headerBytes;

        /// <param name="reader">At a put.</param>
        /// <param name="header">Memory for <see cref="KvValue.HeaderBytesMax"/> bytes.</param>
        /// <param name="nextChange">The etag of that put; advanced.</param>
        /// <param name="count">Operations that took a change; advanced.</param>
        public Puts(OperationReader reader, Span<byte> header, ref Etag nextChange, ref int count)
        {
            _reader = reader;
            _header = header;
            _nextChange = ref nextChange;
            _count = ref count;
            WriteHeader();
        }

        /// <summary>Whether the reader is at one.</summary>
        public static bool Has(in OperationReader reader) => reader.Code == OperationCode.Put && reader.Life.IsUnlimited;

        public readonly ReadOnlySpan<byte> Key => _reader.Key;

        public readonly ReadOnlySpan<byte> Header => _header[.._headerBytes];

        public readonly ReadOnlySpan<byte> Body => _reader.Value;

        /// <summary>At the operation behind the puts, unless there is none.</summary>
        public readonly OperationReader Reader => _reader;

        /// <summary>Whether no operation follows.</summary>
        public bool IsAtEnd { get; private set; }

        public bool MoveNext()
        {
            _nextChange++;
            _count++;
            IsAtEnd = !_reader.MoveNext();
            if (IsAtEnd || !Has(_reader))
                return false;
            WriteHeader();
            return true;
        }

        private void WriteHeader() => _headerBytes = KvValue.WriteHeader(_header, _nextChange, default);
    }
}
