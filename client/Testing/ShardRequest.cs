using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>What is to be changed or read in one shard, atomically. All calls that change keys or sets become one.</summary>
/// <param name="Conditions">Evaluated before the operations.</param>
/// <param name="Operations">Applied if all conditions hold.</param>
/// <param name="Otherwise">Applied if one does not; null: the request is refused then.</param>
/// <param name="WithResults">Whether there is a result for each operation, with the bounds that results have.</param>
internal sealed record ShardRequest(
    IReadOnlyList<V1.Condition> Conditions, IReadOnlyList<V1.Operation> Operations, IReadOnlyList<V1.Operation>? Otherwise, bool WithResults)
{
    /// <summary>The key of a call on one key, which conditions without a key are about.</summary>
    public KvKey Key { get; init; }

    /// <summary>The operations are members of one call on a set, of which there may be more than operations with results.</summary>
    public bool IsOfMembers { get; init; }

    /// <summary>The key by which the shard is found; null if the request names none.</summary>
    public KvKey? First
    {
        get
        {
            foreach (var operation in Operations.Concat(Otherwise ?? []))
                return KeyOf(operation);
            foreach (var condition in Conditions)
            {
                if (!condition.Key.IsEmpty)
                    return new KvKey(condition.Key.Memory);
            }
            return null;
        }
    }

    /// <summary>Whether nothing can change.</summary>
    public bool OnlyReads => Operations.Concat(Otherwise ?? []).All(static operation => operation.OperationCase
        is V1.Operation.OperationOneofCase.Get or V1.Operation.OperationOneofCase.Scan or V1.Operation.OperationOneofCase.SetGet);

    /// <summary>A call on one key, with one operation.</summary>
    public static ShardRequest OfKey(KvKey key, KvCondition? condition, Action<KvOperations> operation)
    {
        var write = new KvWrite();
        operation(write.Operations);
        return new ShardRequest(condition is null ? [] : [condition.Message], write.Message.Operations, null, WithResults: true) { Key = key };
    }

    /// <summary>The key that a condition is about; empty if it names none and the request has none.</summary>
    public KvKey KeyOf(V1.Condition condition) => condition.Key.IsEmpty ? Key : new KvKey(condition.Key.Memory);

    /// <summary>The key of an operation, or the first one of its range.</summary>
    public static KvKey KeyOf(V1.Operation operation) => operation.OperationCase switch
    {
        V1.Operation.OperationOneofCase.Put => operation.Put.Key.Memory,
        V1.Operation.OperationOneofCase.Delete => operation.Delete.Key.Memory,
        V1.Operation.OperationOneofCase.DeleteRange => operation.DeleteRange.Start.Memory,
        V1.Operation.OperationOneofCase.Increment => operation.Increment.Key.Memory,
        V1.Operation.OperationOneofCase.Touch => operation.Touch.Key.Memory,
        V1.Operation.OperationOneofCase.SetAdd => operation.SetAdd.Key.Memory,
        V1.Operation.OperationOneofCase.SetRemove => operation.SetRemove.Key.Memory,
        V1.Operation.OperationOneofCase.Get => operation.Get.Key.Memory,
        V1.Operation.OperationOneofCase.Scan => operation.Scan.Start.Memory,
        V1.Operation.OperationOneofCase.SetGet => operation.SetGet.Key.Memory,
        _ => throw new InvalidOperationException($"There is no operation {operation.OperationCase}."),
    };
}

/// <summary>What a request did.</summary>
/// <param name="Position">The newest change of the shard then.</param>
/// <param name="FailedCondition">The first condition that did not hold; null: all did.</param>
/// <param name="Results">One for each operation that was applied.</param>
/// <param name="KeysDeleted">How many keys its deletes removed.</param>
/// <param name="MembersChanged">How many members it added to sets or removed from them.</param>
internal sealed record Applied(
    ShardPosition Position, int? FailedCondition, IReadOnlyList<OperationResult> Results, long KeysDeleted, ulong MembersChanged);
