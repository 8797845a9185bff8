using System.Runtime.CompilerServices;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Trees;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Reads the leaves that the writer will change from the disk before it gets there. The writer reads one page after the other, and its shards wait for each;
/// this asks the disk for those of many waiting requests at once. Owned by a store. Submitting threads tell it the keys, and so does the writer of a large
/// piece of work that it puts off until then (<see cref="ReadAhead"/>); it looks them up on an executor that all stores of a node share for this, in the
/// published state and as a reader, so that no page that it reads is reused meanwhile. What it reads is only faster to reach afterwards: no result depends on
/// it.
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

    /// <summary>Bytes of keys that may wait, or are taken from one piece of work at a time. Those of further requests are left to the writer.</summary>
    private const int KeyBytesMax = 64 << 10;

    /// <summary>Leaves that the disk is asked for at once: 2 MiB.</summary>
    private const int LeavesAtOnce = 256;

    /// <summary>Entries of other trees that a key with a life has, at most.</summary>
    private const int EntriesOfLife = 2;

    private readonly Lock _gate = new();

    /// <summary>The levels of branches of each tree, as far as known. What is below them is begun to be read and not waited for.</summary>
    private readonly int[] _levels = new int[StoreRoot.TreesMax];

    /// <summary>Pieces of work whose pages are to be read. A store has a few at most.</summary>
    private readonly Queue<Work> _works = new();

    private PageKeys _waiting = new();
    private PageKeys _taken = new();
    private bool _isPosted;

    /// <summary>The number of the last request in <see cref="_waiting"/> as a whole, and of the last one whose pages were read.</summary>
    private long _numberWaiting;
    private long _numberRead;

    /// <summary>Counted without care, because it only selects samples.</summary>
    private int _requests;

    /// <summary>Keys to be looked up until the trees count as being in memory.</summary>
    private volatile int _keysUntilWarm;

    /// <summary>Whether leaves had to be read from the disk lately, or may have to be. Any thread.</summary>
    public bool IsCold => _keysUntilWarm > 0;

    /// <summary>Pages have left memory, or the writer had to read some. Any thread.</summary>
    public void BecomeCold() => _keysUntilWarm = KeysUntilWarm;

    /// <summary>
    /// Takes the keys that a request reads or changes: those of its conditions and operations, and its ranges. Called when the queue has room for the
    /// request, before the writer can see it. Any thread.
    /// </summary>
    public void Add(WriteRequest request)
    {
        if (!IsCold && ++_requests % SampleEvery != 0)
            return;
        lock (_gate)
        {
            if (_waiting.Add(request, KeyBytesMax))
                request.PrefetchNumber = ++_numberWaiting;
            PostLocked();
        }
    }

    /// <summary>Whether everything that a request needs was read since it was submitted. Any thread.</summary>
    public bool HasRead(WriteRequest request) => request.PrefetchNumber > 0 && request.PrefetchNumber <= Volatile.Read(ref _numberRead);

    /// <summary>Reads what a piece of work needs.</summary>
    /// <param name="keys">Its keys, which belong to this class from here on.</param>
    /// <param name="more">Provides further ones, on the executor; null: there are none.</param>
    /// <param name="done">Called there when all is read, or cannot be.</param>
    public void Read(PageKeys keys, PageKeysFill? more, Action done)
    {
        lock (_gate)
        {
            _works.Enqueue(new Work(keys, more, done));
            PostLocked();
        }
    }

    /// <summary>Looks up what waits, and a part of the first piece of work. Others' turns come in between.</summary>
    public void Execute()
    {
        Work? work;
        long number;
        lock (_gate)
        {
            (_waiting, _taken) = (_taken, _waiting);
            (_isPosted, number) = (false, _numberWaiting);
            _works.TryPeek(out work);
        }
        TryRun(() => ReadAll(_taken));
        Volatile.Write(ref _numberRead, number);
        _taken.Clear(IsCold ? KeyBytesMax * 2 : 0);
        if (work is null)
            return;
        var more = false;
        if (TryRun(() => more = Continue(work)) && more)
        {
            lock (_gate)
                PostLocked();
            return;
        }
        lock (_gate)
        {
            _works.Dequeue();
            PostLocked();
        }
        work.Done();
    }

    private void PostLocked()
    {
        Invariant.CheckHeld(_gate);
        if (_isPosted || (_waiting.Bytes == 0 && _works.Count == 0))
            return;
        _isPosted = true;
        executor.Post(this);
    }

    private bool TryRun(Action read)
    {
        try
        {
            read();
            return true;
        }
        catch (Exception failure) when (failure is StoreStoppedException or SnapshotLimitException or CorruptStoreException or UnreadableRecordException)
        {
            // The store knows of damage already (PageSpace.Damaged), the writer finds out about the record, and without the other two it reads its pages
            // itself.
        }
        catch (Exception failure)
        {
            failed(failure);
        }
        return false;
    }

    /// <summary>Reads a part of what a piece of work needs; false at its end.</summary>
    private bool Continue(Work work)
    {
        if (work.At == work.Keys.Bytes && work.HasMore)
        {
            work.Keys.Clear(KeyBytesMax * 2);
            work.At = 0;
            using var snapshot = open();
            work.HasMore = work.More!(snapshot, work.Keys, KeyBytesMax);
        }
        if (work.At < work.Keys.Bytes)
        {
            var keys = work.Keys.Entries[work.At..];
            ReadSome(ref keys);
            work.At = work.Keys.Bytes - keys.Length;
        }
        return work.At < work.Keys.Bytes || work.HasMore;
    }

    private void ReadAll(PageKeys keys)
    {
        for (var rest = keys.Entries; !rest.IsEmpty;)
            ReadSome(ref rest);
    }

    // Begins to read the leaves of some keys, then waits for them, so that the disk has all of them to do at once.
    [SkipLocalsInit]
    private unsafe void ReadSome(ref ReadOnlySpan<byte> keys)
    {
        using var snapshot = open();
        Span<Asked> asked = stackalloc Asked[LeavesAtOnce];
        var from = keys;
        int looked, count;
        bool isAbove;
        // Until the levels of a tree are known, what is asked for may be branches, below which the leaves are.
        do
        {
            keys = from;
            (looked, count) = (0, 0);
            while (count < LeavesAtOnce && PageKeys.TryTake(ref keys, out var key))
            {
                looked++;
                var root = snapshot.Root.Trees[(int)key.Tree];
                if (!key.Key.IsEmpty)
                    BeginRead(&root, key.Tree, key.Key, asked, ref count);
                if (key is { Kind: PageKeyKind.Removal, Tree: TreeId.Kv, End.IsEmpty: false } && count < LeavesAtOnce)
                    BeginRead(&root, key.Tree, key.End, asked, ref count);
            }
            isAbove = Await(asked[..count]);
        }
        while (isAbove);
        count += ReadBehind(snapshot, from[..(from.Length - keys.Length)], asked);
        _keysUntilWarm = count > 0 ? KeysUntilWarm : Math.Max(0, _keysUntilWarm - looked);
    }

    // What leaves that are in memory by now refer to: the trees of large sets, and of keys with a life its entries and a value in pages of its own, which the
    // writer reads for its header. Returns how many leaves had to be read.
    private unsafe int ReadBehind(in ReadSnapshot snapshot, ReadOnlySpan<byte> keys, Span<Asked> asked)
    {
        var count = 0;
        var hasLives = snapshot.Count(TreeId.Expiry) + snapshot.Count(TreeId.Owned) > 0;
        while (count <= LeavesAtOnce - EntriesOfLife && PageKeys.TryTake(ref keys, out var key))
        {
            var root = snapshot.Root.Trees[(int)key.Tree];
            if (key.Kind == PageKeyKind.Range)
                ReadRange(snapshot, key);
            else if (key is { Kind: PageKeyKind.Removal, Tree: TreeId.Kv })
                new RemovalPages(pages.Space).Read(&root, key.Key, key.End);
            if (key.Tree != TreeId.Sets && (key.Kind != PageKeyKind.Point || key.Tree != TreeId.Kv || !(hasLives || key.HasValue)))
                continue;
            var cell = Lookup.Find(pages.Space, &root, key.Key);
            if (cell == null)
                continue;
            if (key.Tree == TreeId.Kv)
            {
                BeginReadLife(snapshot, cell, key.HasValue, asked, ref count);
            }
            else if (TreePage.CellHasTree(cell))
            {
                var members = TreePage.CellTree(cell);
                if (key.Kind == PageKeyKind.Removal)
                    new RemovalPages(pages.Space).Read(&members, default, key.End);
                else
                    BeginRead(&members, tree: null, key.End, asked, ref count);
            }
        }
        Await(asked[..count]);
        return count;
    }

    private unsafe void BeginReadLife(in ReadSnapshot snapshot, byte* cell, bool withValue, Span<Asked> asked, ref int count)
    {
        if (withValue)
            TreePage.ReadRun(pages.Space, cell);
        var stored = TreePage.CellBeginning(pages.Space, cell, KvValue.HeaderBytesMax);
        _ = KvValue.Read(stored, out var etag, out var life);
        Span<byte> entry = stackalloc byte[Math.Max(ExpiryIndex.KeyBytes, OwnedKeys.EntryKeyBytes)];
        if (life.ExpiryMilliseconds != 0)
        {
            ExpiryIndex.WriteKey(entry, life.ExpiryMilliseconds, etag);
            var root = snapshot.Root.Trees[(int)TreeId.Expiry];
            BeginRead(&root, TreeId.Expiry, entry[..ExpiryIndex.KeyBytes], asked, ref count);
        }
        if (life.Owner != Etag.None)
        {
            OwnedKeys.WriteEntryKey(entry, life.Owner, etag);
            var root = snapshot.Root.Trees[(int)TreeId.Owned];
            BeginRead(&root, TreeId.Owned, entry[..OwnedKeys.EntryKeyBytes], asked, ref count);
        }
    }

    // A scan reads ahead by itself.
    private static void ReadRange(in ReadSnapshot snapshot, in PageKey range)
    {
        using var cursor = snapshot.Cursor(range.Tree, range.Key, range.End);
        for (var left = range.Limit; left > 0 && cursor.MoveNext(); left--)
            cursor.ReadRun();
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

    // Returns whether some of what was asked for are branches.
    private unsafe bool Await(Span<Asked> asked)
    {
        var isAny = false;
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
        {
            _levels[tree] += isAbove[tree] ? 1 : 0;
            isAny |= isAbove[tree];
        }
        return isAny;
    }

    /// <summary>A page that was asked for.</summary>
    private struct Asked(PageLink link, TreeId? tree)
    {
        public PageLink Link = link;

        /// <summary>Null in the tree of a set.</summary>
        public readonly TreeId? Tree = tree;
    }
    /// <summary>A piece of work, and how far its pages are read. Used on the executor.</summary>
    private sealed class Work(PageKeys keys, PageKeysFill? more, Action done)
    {
        public PageKeys Keys => keys;

        public PageKeysFill? More => more;

        public Action Done => done;

        /// <summary>Bytes of the keys that are done with.</summary>
        public int At { get; set; }

        public bool HasMore { get; set; } = more is not null;
    }
}

/// <summary>Adds keys of a piece of work, as many as <paramref name="bytesMax"/> has room for, and returns whether there may be more.</summary>
internal delegate bool PageKeysFill(in ReadSnapshot snapshot, PageKeys keys, int bytesMax);
