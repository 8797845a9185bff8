using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Names what a piece of the writer's work will read and change of the trees: keys, members of sets, ranges. <see cref="PathPrefetch"/> reads the pages. One
/// thread at a time.
/// </summary>
/// <param name="every">Of the keys and members that are added, one of so many is kept; of ranges each.</param>
internal sealed class PageKeys(int every = 1)
{
    /// <summary>In the first byte of an entry, beside its tree: the kind of the entry.</summary>
    private const byte RangeMark = 0x40;
    private const byte RemovalMark = 0x80;
    private const byte KindMask = RangeMark | RemovalMark;

    /// <summary>In the first byte of an entry of a key: its value is read.</summary>
    private const byte ValueMark = 0x20;

    private readonly ByteBuffer _entries = new(0);
    private int _points;

    /// <summary>Bytes of what was added.</summary>
    public int Bytes => _entries.Count;

    /// <summary>What was added, for <see cref="TryTake"/>.</summary>
    public ReadOnlySpan<byte> Entries => _entries.Written;

    /// <summary>Forgets what was added.</summary>
    /// <param name="bytesMax">What remains allocated.</param>
    public void Clear(int bytesMax) => _entries.Clear(bytesMax);

    /// <summary>Adds a key of any tree but that of the sets.</summary>
    public void Add(TreeId tree, ReadOnlySpan<byte> key)
    {
        if (IsKept())
            Add((byte)tree, key);
    }

    /// <summary>Adds a key whose value is read, also if it has pages of its own.</summary>
    public void AddWithValue(ReadOnlySpan<byte> key)
    {
        if (IsKept())
            Add((byte)TreeId.Kv | ValueMark, key);
    }

    /// <summary>Adds a member of a set.</summary>
    public void AddMember(ReadOnlySpan<byte> key, ReadOnlySpan<byte> member)
    {
        if (!IsKept())
            return;
        Add((byte)TreeId.Sets, key);
        _entries.AppendWithLength(member);
    }

    /// <summary>Adds the first keys of a range, with their values.</summary>
    public void AddRange(ReadOnlySpan<byte> key, ReadOnlySpan<byte> end, int limit)
    {
        Add((byte)TreeId.Kv | RangeMark, key);
        _entries.AppendWithLength(end);
        _entries.AppendNumber((ulong)limit);
    }

    /// <summary>Adds what is read to delete a range of keys, or, in the tree of the sets, the members of a set that are before another one.</summary>
    public void AddRemoval(TreeId tree, ReadOnlySpan<byte> key, ReadOnlySpan<byte> end)
    {
        Add((byte)((byte)tree | RemovalMark), key);
        _entries.AppendWithLength(end);
    }

    /// <summary>Adds what a request needs.</summary>
    /// <param name="request">The request.</param>
    /// <param name="bytesMax">Bytes after which nothing is added.</param>
    /// <returns>Whether everything was added.</returns>
    public bool Add(WriteRequest request, int bytesMax)
    {
        for (var conditions = new ConditionReader(request.EncodedConditions); conditions.MoveNext(); Add(conditions))
        {
            if (_entries.Count >= bytesMax)
                return false;
        }
        for (var operations = new RequestReader(request.EncodedOperations); operations.MoveNext(); Add(operations))
        {
            if (_entries.Count >= bytesMax)
                return false;
        }
        return true;
    }

    /// <summary>Adds what an operation of a record needs.</summary>
    public void Add(in OperationReader operation)
    {
        switch (operation.Code)
        {
            case OperationCode.Put or OperationCode.PutNumbered or OperationCode.Delete or OperationCode.DeleteOwned or OperationCode.Expire:
                Add(TreeId.Kv, operation.Key);
                break;
            case OperationCode.Touch:
                AddWithValue(operation.Key);
                break;
            case OperationCode.DeleteRange:
                AddRemoval(TreeId.Kv, operation.Key, operation.KeyEnd);
                break;
            case OperationCode.SetAdd or OperationCode.SetRemove:
                AddMember(operation.Key, operation.Member);
                break;
            case OperationCode.SetDelete:
                AddRemoval(TreeId.Sets, operation.Key, operation.Member);
                break;
            default:
                // The table of the sessions is used all the time, and stays in memory; what is forgotten of the expiries is at the beginning of their tree.
                break;
        }
    }

    /// <summary>Takes the first of several entries.</summary>
    public static bool TryTake(ref ReadOnlySpan<byte> entries, out PageKey key)
    {
        key = default;
        if (entries.IsEmpty)
            return false;
        var first = entries[0];
        entries = entries[1..];
        var tree = (TreeId)(first & ~(KindMask | ValueMark));
        var name = TakeBytes(ref entries);
        key = (first & KindMask) switch
        {
            RangeMark => new PageKey { Kind = PageKeyKind.Range, Tree = tree, Key = name, End = TakeBytes(ref entries), Limit = (int)TakeNumber(ref entries) },
            RemovalMark => new PageKey { Kind = PageKeyKind.Removal, Tree = tree, Key = name, End = TakeBytes(ref entries) },
            _ => new PageKey { Tree = tree, Key = name, HasValue = (first & ValueMark) != 0, End = tree == TreeId.Sets ? TakeBytes(ref entries) : default },
        };
        return true;
    }

    private void Add(in ConditionReader condition)
    {
        if (condition.Kind is ConditionKind.SetHas or ConditionKind.SetLacks)
        {
            AddMember(condition.Key, condition.Value);
        }
        else if (condition.Kind != ConditionKind.Range)
        {
            AddWithValue(condition.Key);
        }
        else if (condition.Greatest is not null)
        {
            AddRange(condition.Key, condition.KeyEnd, KvLimits.ConditionKeysMax);
        }
        else
        {
            // The branches tell the number, except on the edges.
            AddEdge(condition.Key);
            AddEdge(condition.KeyEnd);
        }
    }

    private void Add(in RequestReader operation)
    {
        switch (operation.Code)
        {
            // A numbered put gets the key behind all keys with its prefix, which is mostly beside the one before it.
            case RequestOperation.Put or RequestOperation.PutOnTerms or RequestOperation.Delete:
                Add(TreeId.Kv, operation.Key);
                break;
            case RequestOperation.Increment or RequestOperation.Touch or RequestOperation.Get:
                AddWithValue(operation.Key);
                break;
            case RequestOperation.Scan:
                AddRange(operation.Key, operation.KeyEnd, operation.Limit);
                break;
            case RequestOperation.DeleteRange:
                AddRemoval(TreeId.Kv, operation.Key, operation.KeyEnd);
                break;
            case RequestOperation.SetAdd or RequestOperation.SetRemove or RequestOperation.SetGet:
                AddMember(operation.Key, operation.Member);
                break;
            case RequestOperation.SetDelete:
                AddRemoval(TreeId.Sets, operation.Key, default);
                break;
            default:
                // The table of the sessions is used all the time, and stays in memory.
                break;
        }
    }

    private void AddEdge(ReadOnlySpan<byte> key)
    {
        if (!key.IsEmpty)
            Add(TreeId.Kv, key);
    }

    private void Add(byte first, ReadOnlySpan<byte> key)
    {
        _entries.Append([first]);
        _entries.AppendWithLength(key);
    }

    private bool IsKept() => _points++ % every == 0;

    private static ReadOnlySpan<byte> TakeBytes(ref ReadOnlySpan<byte> entries)
    {
        var length = (int)TakeNumber(ref entries);
        var bytes = entries[..length];
        entries = entries[length..];
        return bytes;
    }

    private static ulong TakeNumber(ref ReadOnlySpan<byte> entries)
    {
        _ = Varint.TryRead(ref entries, out var number);
        return number;
    }
}

/// <summary>How much of a tree an entry of <see cref="PageKeys"/> is about.</summary>
internal enum PageKeyKind
{
    /// <summary>A key, in the tree of the sets with a member.</summary>
    Point,

    /// <summary>The first keys of a range.</summary>
    Range,

    /// <summary>What is read to delete a range or a set.</summary>
    Removal,
}

/// <summary>An entry of <see cref="PageKeys"/>.</summary>
internal readonly ref struct PageKey
{
    /// <summary>What the entry names.</summary>
    public PageKeyKind Kind { get; init; }

    /// <summary>The tree.</summary>
    public TreeId Tree { get; init; }

    /// <summary>The key, or the first one of a range.</summary>
    public ReadOnlySpan<byte> Key { get; init; }

    /// <summary>The end of a range, the member of a set, or the one before which members are deleted.</summary>
    public ReadOnlySpan<byte> End { get; init; }

    /// <summary>Whether the value of a key is read.</summary>
    public bool HasValue { get; init; }

    /// <summary>How many keys of a range are read.</summary>
    public int Limit { get; init; }
}
