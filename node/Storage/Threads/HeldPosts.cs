namespace KvCluster.Storage.Threads;

/// <summary>
/// What the items of one executor have to post elsewhere, held until the end of a pass: until what was queued when the first was held has run. Many short
/// items, such as the writes of many shards, then wake the other thread once, and it finds them all. Nothing is held while nothing is queued. Nobody must wait
/// for a long item, so whoever runs one calls <see cref="Give"/> at its end. Used on the executor only.
/// </summary>
internal sealed class HeldPosts : IWorkItem
{
    /// <summary>An item that took less than this is short: the other thread takes as long to wake up.</summary>
    public static readonly TimeSpan ShortMax = TimeSpan.FromMicroseconds(25);

    /// <summary>Posts after which they are made, so that the first of them does not wait for many short items.</summary>
    internal const int CountMax = 16;

    private readonly List<Func<IWorkItem?>> _held = new(CountMax);
    private readonly ISerialExecutor _executor;
    private readonly Action<IWorkItem> _post;
    private readonly List<HeldPosts> _all;
    private bool _isPosted;

    /// <summary>Holds nothing yet.</summary>
    /// <param name="executor">The executor whose items post.</param>
    /// <param name="post">Posts to where they post.</param>
    /// <param name="all">Those of the executor that are given together, because none may wait for a long item. This one joins them. Null: there are no
    /// others.</param>
    public HeldPosts(ISerialExecutor executor, Action<IWorkItem> post, List<HeldPosts>? all = null)
    {
        (_executor, _post, _all) = (executor, post, all ?? []);
        _all.Add(this);
    }

    /// <summary>Holds a post, unless it is held already.</summary>
    /// <param name="take">Returns what is to be posted then; null if it was posted meanwhile. The same delegate each time.</param>
    public void Hold(Func<IWorkItem?> take)
    {
        if (_held.Contains(take))
            return;
        _held.Add(take);
        if (_held.Count == CountMax || !_executor.HasWork)
        {
            Give();
            return;
        }
        if (_isPosted)
            return;
        _isPosted = true;
        _executor.Post(this);
    }

    /// <summary>The pass has ended.</summary>
    public void Execute()
    {
        _isPosted = false;
        Give();
    }

    /// <summary>Posts what is held, also by the others of the executor.</summary>
    public void Give()
    {
        foreach (var posts in _all)
            posts.GiveOwn();
    }

    private void GiveOwn()
    {
        if (_held.Count == 0)
            return;
        if (_held is [var single])
        {
            _held.Clear();
            if (single() is { } alone)
                _post(alone);
            return;
        }
        List<IWorkItem> items = new(_held.Count);
        foreach (var take in _held)
        {
            if (take() is { } item)
                items.Add(item);
        }
        _held.Clear();
        if (items.Count > 0)
            _post(items.Count == 1 ? items[0] : new Together(items));
    }

    private sealed class Together(List<IWorkItem> items) : IWorkItem
    {
        public void Execute()
        {
            foreach (var item in items)
                item.Execute();
        }

        /// <summary>For diagnostics.</summary>
        public override string ToString() => $"{items[0]} and {items.Count - 1} more";
    }
}
