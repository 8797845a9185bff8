using KvCluster.Storage.Threads;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// A piece of the writer's work at a time that is put off until its pages are in memory: a request of many keys, expiries, the end of a session, records that
/// a follower applies. The writer would read them one after the other, with all shards of its thread waiting. Writer executor.
/// </summary>
/// <remarks>
/// While the trees count as being in memory, work is put off only if it has so many keys that the way to another thread and back is nothing beside it, and
/// some of its keys are looked up to see whether the trees still are.
/// </remarks>
/// <param name="prefetch">Reads the pages; null: nobody does, and nothing is put off.</param>
/// <param name="writer">The writer executor.</param>
/// <param name="ready">Called on it when the work may begin.</param>
internal sealed class ReadAhead(PathPrefetch? prefetch, ISerialExecutor writer, Action ready)
{
    /// <summary>
    /// Work with fewer keys is not put off. It takes less time than the way to another thread and back, and no more reads than a step may have.
    /// </summary>
    public const int KeysMin = 32;

    /// <summary>Work with fewer keys is not put off while the trees count as being in memory.</summary>
    public const int KeysMinInMemory = 512;

    /// <summary>While the trees count as being in memory, one key of so many is looked up.</summary>
    private const int KeysPerSample = 16;

    private UInt128 _work;
    private bool _isRead;
    private ulong _requestLast;

    /// <summary>Whether work is put off.</summary>
    public bool IsUnderWay { get; private set; }

    /// <summary>Whether pages may have to be read, and somebody does that beside the writer.</summary>
    public bool IsCold => prefetch is { IsCold: true };

    /// <summary>The writer had to read so many pages that what follows is to be read ahead.</summary>
    public void BecomeCold() => prefetch?.BecomeCold();

    /// <summary>
    /// Whether a piece of work may begin. If not, nothing of it may, until <c>ready</c> is called; then it is asked for again.
    /// </summary>
    /// <param name="work">Tells it from others.</param>
    /// <param name="keys">About how many keys it has.</param>
    /// <param name="fill">Provides them, on another thread.</param>
    public bool MayBegin(UInt128 work, int keys, PageKeysFill fill) => AreFew(keys) || MayBegin(work) || Begin(NewKeys(), fill);

    /// <summary>Whether a request may begin. Its keys are copied, because it may be answered before they are read.</summary>
    public bool MayBegin(WriteRequest request)
    {
        if (AreFew(request.KeysLookedUp) || MayBegin(WorkOf(request)) || (!IsUnderWay && prefetch!.HasRead(request)))
            return true;
        if (IsUnderWay)
            return false;
        var copy = NewKeys();
        copy.Add(request, int.MaxValue);
        return Begin(copy, fill: null);
    }

    /// <summary>Whether work with so many keys may begin in any case.</summary>
    public bool AreFew(int keys) => !IsUnderWay && (prefetch is null || keys < (prefetch.IsCold ? KeysMin : KeysMinInMemory));

    /// <summary>A number for the work of a request, while it waits. The number of its rental is not enough, because others may have the same one.</summary>
    public UInt128 WorkOf(WriteRequest request)
    {
        if (request.WorkNumber == 0)
            request.WorkNumber = ++_requestLast;
        return request.WorkNumber;
    }

    private bool MayBegin(UInt128 work)
    {
        if (IsUnderWay)
            return false;
        if (_work == work && (_isRead || !IsCold))
            return true;
        (_work, _isRead) = (work, IsCold);
        return false;
    }

    private PageKeys NewKeys() => new(_isRead ? 1 : KeysPerSample);

    private bool Begin(PageKeys keys, PageKeysFill? fill)
    {
        if (IsUnderWay)
            return false;
        IsUnderWay = true;
        var done = new WorkAction(OnDone);
        prefetch!.Read(keys, fill, () => writer.Post(done));
        return false;
    }

    private void OnDone()
    {
        IsUnderWay = false;
        ready();
    }
}
