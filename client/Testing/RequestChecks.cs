using Google.Protobuf;
using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>The limits of requests that do not depend on what is stored. Pure.</summary>
/// <exception cref="KvException">From every method: the request is refused.</exception>
internal static class RequestChecks
{
    // What an operation or a condition takes besides its key and value, as nodes count it.
    private const int OverheadBytes = 64;

    private const int SessionBytes = 16;

    public static void Key(KvKey key)
    {
        if (key.IsEmpty)
            throw Refusals.KeyEmpty();
        if (key.Length > KvLimits.KeyBytesMax)
            throw Refusals.KeyTooLong();
    }

    public static void Entry(KvKey key, KvValue value)
    {
        Key(key);
        if (value.Length > KvLimits.ValueBytesMax)
            throw Refusals.ValueTooLarge();
    }

    public static void Member(KvKey member)
    {
        if (member.IsEmpty)
            throw Refusals.MemberEmpty();
        if (member.Length > KvLimits.MemberBytesMax)
            throw Refusals.MemberTooLong();
    }

    /// <summary>The range that is named.</summary>
    public static KeyBounds Range(KvKey start, KvKey end, KvKey prefix = default)
    {
        if (prefix.Length > KvLimits.KeyBytesMax)
            throw Refusals.KeyTooLong();
        if (Math.Max(start.Length, end.Length) > KvLimits.BoundBytesMax)
            throw Refusals.BoundTooLong();
        return KeyBounds.Of(start, end, prefix);
    }

    /// <summary>Whether bytes can be the id of a session.</summary>
    public static void SessionId(KvKey id)
    {
        if (id.Length != SessionBytes || !id.Span.ContainsAnyExcept((byte)0))
            throw Refusals.BadRequest("A session is named by the 16 bytes that its opening returned. Nothing was applied; open a session.");
    }

    /// <summary>Whether a shard can apply a request as far as its keys and sizes say.</summary>
    public static void Request(ShardRequest request, Shard shard)
    {
        Conditions(request, shard);
        Operations(request.Operations, request, shard);
        Operations(request.Otherwise ?? [], request, shard);
        var bytes = request.Operations.Concat(request.Otherwise ?? []).Sum(static operation => operation.CalculateSize() + (long)OverheadBytes)
            + request.Conditions.Sum(static condition => condition.CalculateSize() + (long)OverheadBytes);
        if (bytes > KvLimits.WriteBytesMax)
            throw Refusals.WriteTooLarge();
    }

    private static void Conditions(ShardRequest request, Shard shard)
    {
        if (request.Conditions.Count > KvLimits.KeysMax)
            throw Refusals.TooManyOperations(KvLimits.KeysMax);
        if (request.Conditions.Count(static condition => condition.TestCase == V1.Condition.TestOneofCase.Range) > KvLimits.RangeConditionsMax)
            throw Refusals.TooManyOperations(KvLimits.RangeConditionsMax);
        foreach (var condition in request.Conditions)
        {
            var key = request.KeyOf(condition);
            switch (condition.TestCase)
            {
                case V1.Condition.TestOneofCase.Range:
                    if (!condition.Range.HasKeys && condition.Range.EtagGreatest is null)
                        throw Refusals.BadRequest("A condition has no test, or one that is not known.");
                    RangeOf(shard, condition.Key.IsEmpty ? shard.Start : key, condition.Range.End.Memory);
                    break;
                case V1.Condition.TestOneofCase.SetHas:
                    KeyIn(shard, key);
                    Member(condition.SetHas.Memory);
                    break;
                case V1.Condition.TestOneofCase.SetLacks:
                    KeyIn(shard, key);
                    Member(condition.SetLacks.Memory);
                    break;
                case V1.Condition.TestOneofCase.ValueEquals:
                    EntryIn(shard, key, condition.ValueEquals);
                    break;
                case V1.Condition.TestOneofCase.Value:
                    EntryIn(shard, key, condition.Value.Value);
                    break;
                default:
                    KeyIn(shard, key);
                    break;
            }
        }
    }

    private static void Operations(IReadOnlyList<V1.Operation> operations, ShardRequest request, Shard shard)
    {
        var most = request.WithResults ? KvLimits.ResultsMax : KvLimits.KeysMax;
        if (operations.Count > most && !request.IsOfMembers)
            throw Refusals.TooManyOperations(most);
        foreach (var operation in operations)
        {
            if (!request.WithResults && NeedsResults(operation))
                throw Refusals.BadRequest("A write with operations that read, increments or sequences must ask for results. Nothing was applied.");
            Operation(operation, shard);
        }
    }

    private static bool NeedsResults(V1.Operation operation) => operation.OperationCase switch
    {
        V1.Operation.OperationOneofCase.Put => operation.Put.Sequence,
        V1.Operation.OperationOneofCase.Increment or V1.Operation.OperationOneofCase.Get or V1.Operation.OperationOneofCase.Scan
            or V1.Operation.OperationOneofCase.SetGet => true,
        _ => false,
    };

    private static void Operation(V1.Operation operation, Shard shard)
    {
        KvKey key = ShardRequest.KeyOf(operation);
        switch (operation.OperationCase)
        {
            case V1.Operation.OperationOneofCase.Put:
                Put(operation.Put, shard);
                break;
            case V1.Operation.OperationOneofCase.DeleteRange:
                RangeOf(shard, key, operation.DeleteRange.End.Memory);
                break;
            case V1.Operation.OperationOneofCase.Scan:
                RangeOf(shard, key, operation.Scan.End.Memory);
                if (operation.Scan.Limit > KvLimits.ScanEntriesMax)
                    throw Refusals.BadRequest("The limit of a scan in a write or transaction is at most 1,000. Nothing was applied.");
                break;
            case V1.Operation.OperationOneofCase.Touch:
                KeyIn(shard, key);
                TimeToLive(operation.Touch.HasTtlMs ? operation.Touch.TtlMs : null);
                break;
            case V1.Operation.OperationOneofCase.SetAdd:
                KeyIn(shard, key);
                Member(operation.SetAdd.Member.Memory);
                break;
            case V1.Operation.OperationOneofCase.SetRemove:
                KeyIn(shard, key);
                if (!operation.SetRemove.Member.IsEmpty)
                    Member(operation.SetRemove.Member.Memory);
                break;
            case V1.Operation.OperationOneofCase.SetGet:
                KeyIn(shard, key);
                if (!operation.SetGet.Member.IsEmpty)
                    Member(operation.SetGet.Member.Memory);
                break;
            default:
                KeyIn(shard, key);
                break;
        }
    }

    private static void Put(V1.PutOperation put, Shard shard)
    {
        EntryIn(shard, put.Key.Memory, put.Value);
        TimeToLive(put.HasTtlMs ? put.TtlMs : null);
        if ((put.KeepExpiry && (put.HasTtlMs || put.Sequence)) || (put.KeepOwner && (!put.Owner.IsEmpty || put.Sequence)))
            throw Refusals.BadRequest("A put that keeps an expiry has no time to live, one that keeps an owner has no owner, and one with a sequence makes a "
                + "new key, which has neither to keep. Nothing was applied.");
        if (!put.Owner.IsEmpty)
            SessionId(put.Owner.Memory);
        if (!put.Sequence)
            return;
        // No shard can number keys that belong to several.
        var (first, last) = (NumberedKey.Of(put.Key.Memory, 0), NumberedKey.Of(put.Key.Memory, ulong.MaxValue));
        if (last.Length > KvLimits.KeyBytesMax)
            throw Refusals.KeyTooLong();
        if (!shard.Owns(first) || !shard.Owns(last))
            throw shard.DiffersFrom(shard.Owns(first) ? last : first);
    }

    private static void TimeToLive(ulong? milliseconds)
    {
        if (milliseconds is 0 or > KvLimits.TtlMillisecondsMax)
            throw Refusals.BadRequest($"A time to live must be from 1 to {KvLimits.TtlMillisecondsMax} milliseconds. Nothing was applied.");
    }

    private static void EntryIn(Shard shard, KvKey key, ByteString value)
    {
        Entry(key, value.Memory);
        KeyIn(shard, key);
    }

    private static void KeyIn(Shard shard, KvKey key)
    {
        Key(key);
        if (!shard.Owns(key))
            throw shard.DiffersFrom(key);
    }

    // Whether a range lies in a shard. An empty end is that of the shard.
    private static void RangeOf(Shard shard, KvKey start, KvKey end)
    {
        Range(start, end);
        if (!end.IsEmpty && start.CompareTo(end) > 0)
            throw Refusals.BadRequest("A range ends before it begins. Nothing was applied.");
        if (!shard.Owns(start))
            throw shard.DiffersFrom(start);
        if (!end.IsEmpty && !shard.End.IsEmpty && end.CompareTo(shard.End) > 0)
            throw shard.DiffersFrom(shard.End);
    }
}
