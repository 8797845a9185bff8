using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// The deltas that a checkpoint folds, by the numbers of their bases: all that it finds. Whether a changed leaf is a delta or whole is decided before, when its
/// batch is sealed (<see cref="LeafDeltas"/>). Deltas are small and many, so one takes 8 bytes here. The checkpoint executor fills it; after the write, the
/// writer searches it (<see cref="ReferenceSwap"/>).
/// </summary>
/// <param name="pages">The pages of the checkpoint, deltas among them.</param>
internal sealed unsafe class CheckpointDeltas(List<nint> pages)
{
    /// <summary>A base's number above these bits, and in them the index of its delta among the pages.</summary>
    private const int IndexBits = 32;
    private readonly List<ulong> _entries = [];

    /// <summary>How many there are.</summary>
    public int Count => _entries.Count;

    /// <summary>Adds a delta, which is the next page.</summary>
    public void AddNext(byte* delta) => _entries.Add(((ulong)DeltaPage.Base(delta).Reference.Number << IndexBits) | (uint)pages.Count);

    /// <summary>All are added. Each must have a base of its own.</summary>
    public void Sort()
    {
        _entries.Sort();
        for (var i = 1; i < Count; i++)
            Invariant.Check(BaseAt(i - 1) < BaseAt(i), $"A checkpoint has two deltas of page {BaseAt(i)}.");
    }

    /// <summary>Finds the delta of a base.</summary>
    public bool TryFind(long number, out byte* delta)
    {
        delta = null;
        var index = _entries.BinarySearch((ulong)number << IndexBits);
        index = index < 0 ? ~index : index;
        if (index == Count || BaseAt(index) != number)
            return false;
        delta = (byte*)pages[(int)(uint)_entries[index]];
        return true;
    }

    /// <summary>The page into which the delta of a base was folded; the base itself if there was none.</summary>
    public long PlaceOf(long number) => TryFind(number, out var delta) ? Page.Placed(delta).Number : number;

    /// <summary>The bases in ascending order, neighbours as one run.</summary>
    public List<PageRun> Bases()
    {
        var runs = new List<PageRun>();
        for (var i = 0; i < Count; i++)
        {
            if (runs.Count > 0 && runs[^1] is var last && last.First + last.Count == BaseAt(i))
                runs[^1] = last with { Count = last.Count + 1 };
            else
                runs.Add(new PageRun(BaseAt(i), 1));
        }
        return runs;
    }

    private long BaseAt(int index) => (long)(_entries[index] >> IndexBits);
}
