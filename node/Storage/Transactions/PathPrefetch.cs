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
internal sealed class PathPrefetch(ISerialExecutor executor, PageStore pages, Func<ReadSnapshot> open) : IWorkItem
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
    private ByteBuffer _waiting = new(0);
    private ByteBuffer _taken = new(0);
    private bool _isPosted;

    /// <summary>The levels of branches, as far as known. What is below them is begun to be read and not waited for.</summary>
    private int _levels;

    /// <summary>Counted without care, because it only selects samples.</summary>
    private int _requests;

    /// <summary>Keys to be looked up until the trees count as being in memory.</summary>
    private volatile int _keysUntilWarm;

    /// <summary>Whether leaves had to be read from the disk lately. Any thread.</summary>
    public bool IsCold => _keysUntilWarm > 0;

    /// <summary>Takes the keys of a request that is about to be queued. Any thread; the request must still belong to it.</summary>
    public void Add(WriteRequest request)
    {
        if (!IsCold && ++_requests % SampleEvery != 0)
            return;
        lock (_gate)
        {
            for (var operations = new OperationReader(request.EncodedOperations); operations.MoveNext() && _waiting.Count < KeyBytesMax;)
            {
                if (operations.Code is OperationCode.Put or OperationCode.Delete)
                    _waiting.AppendWithLength(operations.Key);
            }
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
        _taken.Clear(IsCold ? KeyBytesMax * 2 : 0);
    }

    // Begins to read the leaves of some keys, then waits for them, so that the disk has all of them to do at once.
    private unsafe void ReadSome(ref ReadOnlySpan<byte> keys)
    {
        using var snapshot = open();
        var root = snapshot.Root.Trees[(int)TreeId.Kv];
        if (root.Link.Reference.IsNone)
        {
            keys = default;
            return;
        }
        var leaves = stackalloc PageLink*[LeavesAtOnce];
        var (looked, count) = (0, 0);
        while (count < LeavesAtOnce && Varint.TryRead(ref keys, out var length))
        {
            var key = keys[..(int)length];
            keys = keys[(int)length..];
            looked++;
            if (BeginRead(&root, key) is var leaf && leaf != null)
                leaves[count++] = leaf;
        }
        var isAbove = false;
        for (var index = 0; index < count; index++)
            isAbove |= Page.Type(pages.Space.ResolveNodeAgain(leaves[index])) == PageType.Branch;
        _levels += isAbove ? 1 : 0;
        _keysUntilWarm = count > 0 ? KeysUntilWarm : Math.Max(0, _keysUntilWarm - looked);
    }

    // Begins to read the leaf of a key and returns the link to it; null if it is in memory. On the way only branches are waited for, of which most are in memory.
    private unsafe PageLink* BeginRead(TreeRoot* root, ReadOnlySpan<byte> key)
    {
        var link = Lookup.FindLink(pages.Space, root, key, ref _levels);
        while (!pages.Space.TryBeginRead(link))
        {
            var page = pages.Space.ResolveNode(link);
            if (Page.Type(page) != PageType.Branch)
                return null;
            // The tree has grown.
            _levels++;
            link = TreePage.Child(page, TreePage.FindChild(page, key));
        }
        return link;
    }
}
