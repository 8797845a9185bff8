using System.Runtime.CompilerServices;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Reads the leaves that the writer will change from the disk before it gets there. The writer reads one page after the other, and its shards wait for each; this
/// asks the disk for those of many waiting requests at once. Owned by a store. Submitting threads tell it the keys; it looks them up on an executor that
/// all stores of a node share for this, in the published state and as a reader, so that no page that it reads is reused meanwhile. What it reads is only faster to
/// reach afterwards: nothing depends on it.
/// </summary>
/// <param name="executor">Waits for the disk.</param>
/// <param name="pages">The trees.</param>
/// <param name="open">Opens a snapshot.</param>
/// <param name="failed">Gets an exception that nothing but a bug explains, on the executor. It must end the store; the executor goes on for the others.</param>
internal sealed class PathPrefetch(ISerialExecutor executor, PageStore pages, Func<ReadSnapshot> open, Action<Exception> failed) : IWorkItem
{
    /// <summary>While the trees are in memory, only one request in so many is looked up.</summary>
    public const int SampleEvery = 1_024;

    /// <summary>Keys whose leaves were all in memory, after which the trees count as being in memory.</summary>
    public const int KeysUntilWarm = 8_192;

    /// <summary>Bytes of keys that may wait. Further ones are left to the writer.</summary>
    private const int KeyBytesMax = 64 << 10;

    /// <summary>Leaves that the disk is asked for at once: 2 MiB.</summary>
    private const int LeavesAtOnce = 256;

    private readonly Lock _gate = new();

    /// <summary>The levels of branches of each tree, as far as known. What is below them is begun to be read and not waited for.</summary>
    private readonly int[] _levels = new int[StoreRoot.TreesMax];

    /// <summary>For each key its tree, as a byte, and the key. A key of the tree of the sets is followed by a member.</summary>
    private ByteBuffer _waiting = new(0);
    private ByteBuffer _taken = new(0);
    private bool _isPosted;

    /// <summary>Counted without care, because it only selects samples.</summary>
    private int _requests;

    /// <summary>Keys to be looked up until the trees count as being in memory.</summary>
    private volatile int _keysUntilWarm;

    /// <summary>Whether leaves had to be read from the disk lately. Any thread.</summary>
    public bool IsCold => _keysUntilWarm > 0;

    /// <summary>
    /// Takes the keys that a request reads or changes: those of its conditions and operations, and the ends of its ranges. Called when the queue has room for the
    /// request, before the writer can see it. Any thread.
    /// </summary>
    public void Add(WriteRequest request)
    {
        if (!IsCold && ++_requests % SampleEvery != 0)
            return;
        lock (_gate)
        {
            for (var conditions = new ConditionReader(request.EncodedConditions); _waiting.Count < KeyBytesMax && conditions.MoveNext();)
                AddLocked(conditions);
            for (var operations = new RequestReader(request.EncodedOperations); _waiting.Count < KeyBytesMax && operations.MoveNext();)
                AddLocked(operations);
            if (_isPosted || _waiting.Count == 0)
                return;
            _isPosted = true;
        }
        executor.Post(this);
    }

    /// <summary>Looks up what waits.</summary>
    public void Execute()
    {
        lock (_gate)
        {
            (_waiting, _taken) = (_taken, _waiting);
            _isPosted = false;
        }
        try
        {
            for (var keys = _taken.Written; !keys.IsEmpty;)
                ReadSome(ref keys);
        }
        catch (Exception failure) when (failure is StoreStoppedException or SnapshotLimitException or CorruptStoreException)
        {
            // The store knows of damage already (PageSpace.Damaged), and without the other two the writer reads its pages itself.
        }
        catch (Exception failure)
        {
            failed(failure);
        }
        _taken.Clear(IsCold ? KeyBytesMax * 2 : 0);
    }

    private void AddLocked(in ConditionReader condition)
    {
        Invariant.CheckHeld(_gate);
        if (condition.Kind is ConditionKind.SetHas or ConditionKind.SetLacks)
        {
            AddLocked(TreeId.Sets, condition.Key);
            _waiting.AppendWithLength(condition.Value);
        }
        else
        {
            AddLocked(TreeId.Kv, condition.Key);
        }
    }

    private void AddLocked(in RequestReader operation)
    {
        Invariant.CheckHeld(_gate);
        switch (operation.Code)
        {
            // What is put under a number follows the keys with its prefix, and is mostly beside the one before it.
            case RequestOperation.Put or RequestOperation.PutOnTerms or RequestOperation.Delete or RequestOperation.Increment or RequestOperation.Touch
                or RequestOperation.Get or RequestOperation.Scan:
                AddLocked(TreeId.Kv, operation.Key);
                break;
            case RequestOperation.DeleteRange:
                AddLocked(TreeId.Kv, operation.Key);
                // Without an end nothing is left behind the range, so no leaf there is changed.
                if (!operation.KeyEnd.IsEmpty)
                    AddLocked(TreeId.Kv, operation.KeyEnd);
                break;
            case RequestOperation.SetAdd or RequestOperation.SetRemove or RequestOperation.SetGet:
                AddLocked(TreeId.Sets, operation.Key);
                _waiting.AppendWithLength(operation.Member);
                break;
            default:
                // The table of the sessions is used all the time, and stays in memory.
                break;
        }
    }

    private void AddLocked(TreeId tree, ReadOnlySpan<byte> key)
    {
        Invariant.CheckHeld(_gate);
        _waiting.Append([(byte)tree]);
        _waiting.AppendWithLength(key);
    }

    private static bool TryTake(ref ReadOnlySpan<byte> keys, out TreeId tree, out ReadOnlySpan<byte> key, out ReadOnlySpan<byte> member)
    {
        if (keys.IsEmpty)
        {
            tree = default;
            key = member = default;
            return false;
        }
        tree = (TreeId)keys[0];
        keys = keys[1..];
        key = TakeBytes(ref keys);
        member = tree == TreeId.Sets ? TakeBytes(ref keys) : default;
        return true;
    }

    private static ReadOnlySpan<byte> TakeBytes(ref ReadOnlySpan<byte> keys)
    {
        _ = Varint.TryRead(ref keys, out var length);
        var bytes = keys[..(int)length];
        keys = keys[(int)length..];
        return bytes;
    }

    // Begins to read the leaves of some keys, then waits for them, so that the disk has all of them to do at once.
    [SkipLocalsInit]
    private unsafe void ReadSome(ref ReadOnlySpan<byte> keys)
    {
        using var snapshot = open();
        Span<Asked> asked = stackalloc Asked[LeavesAtOnce];
        var from = keys;
        var (looked, count, hasSets) = (0, 0, false);
        while (count < LeavesAtOnce && TryTake(ref keys, out var tree, out var key, out _))
        {
            looked++;
            hasSets |= tree == TreeId.Sets;
            var root = snapshot.Root.Trees[(int)tree];
            BeginRead(&root, tree, key, asked, ref count);
        }
        Await(asked[..count]);
        var inSets = hasSets ? ReadMembers(snapshot, from[..(from.Length - keys.Length)], asked) : 0;
        _keysUntilWarm = count + inSets > 0 ? KeysUntilWarm : Math.Max(0, _keysUntilWarm - looked);
    }

    // The same for the members of large sets, whose trees are below leaves that are in memory by now. Returns how many had to be read.
    private unsafe int ReadMembers(in ReadSnapshot snapshot, ReadOnlySpan<byte> keys, Span<Asked> asked)
    {
        var (sets, count) = (snapshot.Root.Trees[(int)TreeId.Sets], 0);
        while (count < LeavesAtOnce && TryTake(ref keys, out var tree, out var key, out var member))
        {
            var cell = tree == TreeId.Sets ? Lookup.Find(pages.Space, &sets, key) : null;
            if (cell == null || !TreePage.CellHasTree(cell))
                continue;
            var members = TreePage.CellTree(cell);
            BeginRead(&members, tree: null, member, asked, ref count);
        }
        Await(asked[..count]);
        return count;
    }

    // Begins to read the leaf of a key, unless it is in memory or was asked for. On the way only branches are waited for, of which most are in memory.
    private unsafe void BeginRead(TreeRoot* root, TreeId? tree, ReadOnlySpan<byte> key, Span<Asked> asked, ref int count)
    {
        if (root->Link.Reference.IsNone)
            return;
        var levels = tree is { } known ? _levels[(int)known] : 0;
        var link = Lookup.FindLink(pages.Space, root, key, ref levels);
        while (!Has(asked[..count], link))
        {
            if (pages.Space.TryBeginRead(link))
            {
                asked[count++] = new Asked(PageLink.LoadWhole(link), tree);
                break;
            }
            var page = pages.Space.ResolveNode(link);
            if (Page.Type(page) != PageType.Branch)
                break;
            // The tree has grown.
            levels++;
            link = TreePage.Child(page, TreePage.FindChild(page, key));
        }
        if (tree is { } grown)
            _levels[(int)grown] = levels;
    }

    private static unsafe bool Has(ReadOnlySpan<Asked> asked, PageLink* link)
    {
        var reference = PageLink.Load(link);
        foreach (var one in asked)
        {
            if (one.Link.Reference == reference)
                return true;
        }
        return false;
    }

    private unsafe void Await(Span<Asked> asked)
    {
        Span<bool> isAbove = stackalloc bool[_levels.Length];
        fixed (Asked* first = asked)
        {
            for (var index = 0; index < asked.Length; index++)
            {
                if (Page.Type(pages.Space.ResolveNodeAgain(&first[index].Link)) == PageType.Branch && first[index].Tree is { } tree)
                    isAbove[(int)tree] = true;
            }
        }
        for (var tree = 0; tree < _levels.Length; tree++)
            _levels[tree] += isAbove[tree] ? 1 : 0;
    }

    /// <summary>A page that was asked for.</summary>
    private struct Asked(PageLink link, TreeId? tree)
    {
        public PageLink Link = link;

        /// <summary>Null in the tree of a set.</summary>
        public readonly TreeId? Tree = tree;
    }
}
