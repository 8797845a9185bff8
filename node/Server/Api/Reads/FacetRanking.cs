using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>
/// The facets of one prefix that have most in common with an intersection: as many as are asked for, however many sets there are. Used by
/// <see cref="SetIntersectQuery"/>, one thread at a time.
/// </summary>
/// <param name="most">How many are kept, at least one.</param>
/// <param name="tryTake">Whether so many bytes more may be held, or fewer if negative.</param>
internal sealed class FacetRanking(int most, Func<long, bool> tryTake)
{
    /// <summary>What a facet costs besides its key.</summary>
    private const int FacetBytes = 128;

    /// <summary>Facets that one step puts in order.</summary>
    private const int StepFacets = 512;

    // The queue returns the least facet first. Sets come in the order of their keys, so among facets with equal counts the last one is the least.
    private readonly PriorityQueue<byte[], (ulong Count, long Order)> _largest = new();
    private readonly List<(byte[] Key, ulong Count)> _inOrder = [];
    private long _setsFound;
    private long _heldBytes;

    /// <summary>Counts a set, whose key is greater than those before. False if it may not take the memory.</summary>
    public bool TryAdd(ReadOnlySpan<byte> key, ulong common)
    {
        var order = -_setsFound++;
        if (_largest.Count == most)
        {
            _largest.TryPeek(out var least, out var rank);
            if (common <= rank.Count)
                return true;
            Take(-BytesOf(least!));
            _largest.Dequeue();
        }
        if (!Take(BytesOf(key)))
            return false;
        _largest.Enqueue(key.ToArray(), (common, order));
        return true;
    }

    /// <summary>One step of putting them in order, after the last was added. True when it is done.</summary>
    public bool Rank()
    {
        for (var step = 0; step < StepFacets && _largest.TryDequeue(out var key, out var rank); step++)
            _inOrder.Add((key, rank.Count));
        return _largest.Count == 0;
    }

    /// <summary>Bytes of the encoded message.</summary>
    public int MessageBytesOf() =>
        _inOrder.Sum(static facet => WireWriter.BytesFieldSize(MessageBytesOf(facet))) + WireWriter.VarintFieldSize((ulong)_setsFound);

    /// <summary>Writes the message, the largest first, and begins anew.</summary>
    public void WriteTo(ref WireWriter writer)
    {
        for (var index = _inOrder.Count - 1; index >= 0; index--)
        {
            writer.BytesHeader(Facets.SetsFieldNumber, MessageBytesOf(_inOrder[index]));
            writer.BytesField(Facet.KeyFieldNumber, _inOrder[index].Key);
            writer.VarintField(Facet.CountFieldNumber, _inOrder[index].Count);
        }
        writer.VarintField(Facets.SetsFoundFieldNumber, (ulong)_setsFound);
        _inOrder.Clear();
        Take(-_heldBytes);
        _setsFound = 0;
    }

    private bool Take(long bytes)
    {
        if (!tryTake(bytes))
            return false;
        _heldBytes += bytes;
        return true;
    }

    private static int BytesOf(ReadOnlySpan<byte> key) => FacetBytes + key.Length;

    private static int MessageBytesOf((byte[] Key, ulong Count) facet) => WireWriter.BytesFieldSize(facet.Key.Length) + WireWriter.VarintFieldSize(facet.Count);
}
