using System.Runtime.CompilerServices;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Transactions;

namespace KvCluster.Storage;

/// <summary>
/// Operations on the trees of one store, and conditions for them, which <see cref="KvStore.WriteAsync"/> applies as a whole or not at all. Fill it, write it
/// once, and create another one. Keys and values are copied when they are added. What is over a limit is not added, and the batch can still be written. Used by
/// one thread at a time; a call that meets another one is refused with an <see cref="InvalidOperationException"/>.
/// </summary>
/// <remarks>
/// Conditions are evaluated before the operations, on the newest state, which has all batches that were answered. Operations take effect in the order in which
/// they were added.
/// </remarks>
public sealed class KvBatch
{
    /// <summary>
    /// Bytes that an operation or condition takes beside its stored key and its value, at most: code, flags, and two lengths, or a length and an etag.
    /// </summary>
    private const int OverheadBytesMax = 2 + Varint.BytesMax + Etag.ByteLength;

    private WriteRequest? _request = WriteRequest.Rent();
    private KvTree? _tree;
    private List<KvTree>? _otherTrees;
    private int _isInUse;

    /// <summary>Operations added.</summary>
    public int Count { get; private set; }

    /// <summary>Conditions added.</summary>
    public int ConditionCount { get; private set; }

    /// <summary>Adds a put, which sets the value of a key.</summary>
    /// <exception cref="ArgumentOutOfRangeException">The key or the value is over its limit (<see cref="KvStoreLimits"/>).</exception>
    /// <exception cref="KvBatchFullException">The batch is full.</exception>
    [SkipLocalsInit]
    public KvBatch Put(KvTree tree, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value)
    {
        using var turn = TakeTurn();
        CheckValue(value);
        Span<byte> buffer = stackalloc byte[TreeKey.BytesMax];
        var full = TreeKey.WriteWhole(buffer, NumberOf(tree), key);
        Admit(tree, full, value.Length, Count).Put(full, value);
        Count++;
        return this;
    }

    /// <summary>Adds a delete, which removes a key and does nothing if the key does not exist.</summary>
    /// <inheritdoc cref="Put" path="/exception"/>
    [SkipLocalsInit]
    public KvBatch Delete(KvTree tree, ReadOnlySpan<byte> key)
    {
        using var turn = TakeTurn();
        Span<byte> buffer = stackalloc byte[TreeKey.BytesMax];
        var full = TreeKey.WriteWhole(buffer, NumberOf(tree), key);
        Admit(tree, full, 0, Count).Delete(full);
        Count++;
        return this;
    }

    /// <summary>
    /// Adds a member to the set of a key, which is made if there is none. Nothing changes if the set has the member. Sets and values are apart: a key can have
    /// both, and neither <see cref="Delete"/> nor conditions look at sets.
    /// </summary>
    /// <exception cref="ArgumentOutOfRangeException">The key or the member is empty or over its limit (<see cref="KvStoreLimits"/>).</exception>
    /// <exception cref="KvBatchFullException">The batch is full.</exception>
    [SkipLocalsInit]
    public KvBatch SetAdd(KvTree tree, ReadOnlySpan<byte> key, ReadOnlySpan<byte> member)
    {
        using var turn = TakeTurn();
        KvSet.CheckMember(member);
        Span<byte> buffer = stackalloc byte[TreeKey.BytesMax];
        var full = TreeKey.WriteWhole(buffer, NumberOf(tree), key);
        Admit(tree, full, member.Length, Count).SetAdd(full, member);
        Count++;
        return this;
    }

    /// <summary>Removes a member from the set of a key. Nothing changes if the set does not have it. A set without members is gone.</summary>
    /// <inheritdoc cref="SetAdd" path="/exception"/>
    [SkipLocalsInit]
    public KvBatch SetRemove(KvTree tree, ReadOnlySpan<byte> key, ReadOnlySpan<byte> member)
    {
        using var turn = TakeTurn();
        KvSet.CheckMember(member);
        Span<byte> buffer = stackalloc byte[TreeKey.BytesMax];
        var full = TreeKey.WriteWhole(buffer, NumberOf(tree), key);
        Admit(tree, full, member.Length, Count).SetRemove(full, member);
        Count++;
        return this;
    }

    /// <summary>
    /// Adds a delete of the set of a key with all its members; nothing changes if there is none. The sets that a batch deletes may have 8 MiB of members
    /// together: with more, the batch is refused with a <see cref="KvSetTooLargeException"/> when it is written, and <see cref="KvStore.DeleteSetAsync"/> is to
    /// be used.
    /// </summary>
    /// <exception cref="ArgumentOutOfRangeException">The key is empty or over its limit (<see cref="KvStoreLimits"/>).</exception>
    /// <exception cref="KvBatchFullException">The batch is full.</exception>
    [SkipLocalsInit]
    public KvBatch SetDelete(KvTree tree, ReadOnlySpan<byte> key)
    {
        using var turn = TakeTurn();
        Span<byte> buffer = stackalloc byte[TreeKey.BytesMax];
        var full = TreeKey.WriteWhole(buffer, NumberOf(tree), key);
        Admit(tree, full, 0, Count).SetDelete(full);
        Count++;
        return this;
    }

    /// <summary>Adds a condition: the value of the key was set by the change with this etag. <see cref="Etag.None"/>: the key does not exist.</summary>
    /// <inheritdoc cref="Put" path="/exception"/>
    public KvBatch IfEtag(KvTree tree, ReadOnlySpan<byte> key, Etag etag) => If(tree, key, ConditionKind.EtagEquals, etag, default);

    /// <summary>Adds a condition: the key exists.</summary>
    /// <inheritdoc cref="Put" path="/exception"/>
    public KvBatch IfExists(KvTree tree, ReadOnlySpan<byte> key) => If(tree, key, ConditionKind.Exists, default, default);

    /// <summary>Adds a condition: the key does not exist.</summary>
    /// <inheritdoc cref="Put" path="/exception"/>
    public KvBatch IfAbsent(KvTree tree, ReadOnlySpan<byte> key) => If(tree, key, ConditionKind.Absent, default, default);

    /// <summary>Adds a condition: the key exists and has exactly this value.</summary>
    /// <inheritdoc cref="Put" path="/exception"/>
    public KvBatch IfValue(KvTree tree, ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) => If(tree, key, ConditionKind.ValueEquals, default, value);

    /// <summary>Ends the batch and returns its request. Nothing of the batch has changed if this throws.</summary>
    /// <exception cref="InvalidOperationException">The batch was written before, or another thread uses it at this moment.</exception>
    /// <exception cref="ArgumentException">The batch's trees belong to another store.</exception>
    internal WriteRequest Take(KvStore store)
    {
        using var turn = TakeTurn();
        var request = Request();
        _tree?.ThrowUnlessOf(store, "batch");
        _request = null;
        request.IsWhole = true;
        return request;
    }

    /// <summary>Puts the batch's request into a queue while none of its trees can be dropped.</summary>
    /// <returns>Whether there was room.</returns>
    /// <exception cref="KvTreeNotFoundException">A tree was dropped. The request still belongs to the caller.</exception>
    internal bool TrySubmit(WriteRequest request, RequestAdmission queue)
    {
        var held = 0;
        try
        {
            for (var count = (_tree is null ? 0 : 1) + (_otherTrees?.Count ?? 0); held < count; held++)
                TreeAt(held).Hold();
            return queue.TrySubmit(request);
        }
        finally
        {
            while (held > 0)
                TreeAt(--held).Release();
        }
    }

    [SkipLocalsInit]
    private KvBatch If(KvTree tree, ReadOnlySpan<byte> key, ConditionKind kind, Etag etag, ReadOnlySpan<byte> value)
    {
        using var turn = TakeTurn();
        CheckValue(value);
        Span<byte> buffer = stackalloc byte[TreeKey.BytesMax];
        var full = TreeKey.WriteWhole(buffer, NumberOf(tree), key);
        Admit(tree, full, value.Length, ConditionCount).AddCondition(full, kind, etag, value);
        ConditionCount++;
        return this;
    }

    /// <summary>Checks everything about an operation or condition, so that adding it to the request cannot fail in the middle.</summary>
    private WriteRequest Admit(KvTree tree, ReadOnlySpan<byte> full, int valueBytes, int count)
    {
        var request = Request();
        if (_tree is { } first && first.Store != tree.Store)
            throw new ArgumentException(
                $"The tree '{tree.Name}' belongs to another store than the tree '{first.Name}' of the same batch. Nothing was added.", nameof(tree));
        tree.ThrowIfDropped();
        if (count >= KvStoreLimits.BatchOperationsMax)
            throw new KvBatchFullException(
                $"The batch has {count} operations or conditions, which is the most. Nothing was added; write it and begin another one.");
        if ((long)request.Bytes + full.Length + valueBytes + OverheadBytesMax > KvStoreLimits.BatchBytesMax)
            throw new KvBatchFullException(
                $"The batch has {request.Bytes} bytes and cannot take {full.Length + valueBytes} more, because the most are {KvStoreLimits.BatchBytesMax}. "
                + "Nothing was added; write it and begin another one.");
        Use(tree);
        return request;
    }

    // Two threads that fill a batch at once would make a record of it that no replica can read, and two that write it would both own its request.
    private Turn TakeTurn() => Interlocked.Exchange(ref _isInUse, 1) == 0
        ? new Turn(this)
        : throw new InvalidOperationException(
            "Another thread uses the batch at this moment. Nothing was changed by this call; a batch is used by one thread at a time.");

    private void Use(KvTree tree)
    {
        _tree ??= tree;
        if (tree != _tree && _otherTrees?.Contains(tree) != true)
            (_otherTrees ??= []).Add(tree);
    }

    private KvTree TreeAt(int index) => index == 0 ? _tree! : _otherTrees![index - 1];

    private WriteRequest Request() =>
        _request ?? throw new InvalidOperationException("The batch was written already. Nothing was changed; create another batch.");

    private static uint NumberOf(KvTree tree)
    {
        ArgumentNullException.ThrowIfNull(tree);
        return tree.Number;
    }

    /// <summary>The use of the batch by one thread.</summary>
    private readonly ref struct Turn(KvBatch batch)
    {
        public void Dispose() => Volatile.Write(ref batch._isInUse, 0);
    }

    private static void CheckValue(ReadOnlySpan<byte> value)
    {
        if (value.Length > KvStoreLimits.ValueBytesMax)
            throw new ArgumentOutOfRangeException(nameof(value), value.Length, $"A value has at most {KvStoreLimits.ValueBytesMax} bytes.");
    }
}

/// <summary>How a batch ended that was evaluated. Failures are exceptions.</summary>
/// <param name="IsApplied">Whether all conditions held. Then all operations are applied and on stable storage. Otherwise nothing was changed.</param>
/// <param name="Etag">
/// The etag of the last operation; the operations have consecutive etags. If nothing was applied, the etag of the state on which the conditions were evaluated.
/// </param>
/// <param name="FailedCondition">The index of the first condition that did not hold; -1 if all held.</param>
public readonly record struct KvWriteResult(bool IsApplied, Etag Etag, int FailedCondition);
