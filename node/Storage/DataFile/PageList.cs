namespace KvCluster.Storage.DataFile;

/// <summary>
/// A list of scratch pages that grows piece by piece: an addition copies nothing that is there, and the first one takes little memory. For lists that may
/// become long on the writer, which has no time for more. One thread at a time.
/// </summary>
internal sealed class PageList
{
    private const int PiecePages = 1_024;
    private readonly List<nint[]> _pieces = [];

    /// <summary>How many there are.</summary>
    public int Count { get; private set; }

    /// <summary>A page, in the order of the additions.</summary>
    public nint this[int index] => _pieces[index / PiecePages][index % PiecePages];

    /// <summary>Adds a page.</summary>
    public void Add(nint page)
    {
        if (Count / PiecePages == _pieces.Count)
            _pieces.Add(new nint[PiecePages]);
        _pieces[Count / PiecePages][Count % PiecePages] = page;
        Count++;
    }
}
