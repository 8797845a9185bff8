using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Compares the checksums of pages that come in the order of the file, each with its number and its own header: a page that went bad on the disk is found. One
/// that is whole and belongs elsewhere in time only the walk of the whole tree finds. One thread at a time.
/// </summary>
internal sealed unsafe class PageOrderCheck(string path)
{
    private long _run;
    private int _pagesLeft;
    private uint _expected;
    private uint _state;

    /// <summary>The next pages; only a run's first has a header.</summary>
    /// <exception cref="CorruptStoreException">One of them is not what was written.</exception>
    public void Add(long first, ReadOnlySpan<byte> pages)
    {
        for (; !pages.IsEmpty; first++, pages = pages[Page.Bytes..])
        {
            var page = pages[..Page.Bytes];
            if (_pagesLeft == 0)
                Begin(first, page);
            else
                _state = Crc32C.Extend(_state, page);
            if (--_pagesLeft == 0 && ~_state != _expected)
                throw new CorruptStoreException($"'{path}': page {_run} (offset {_run * Page.Bytes}) does not have its checksum {_expected:x8}.");
        }
    }

    private void Begin(long number, ReadOnlySpan<byte> bytes)
    {
        fixed (byte* page = bytes)
        {
            if (Page.Number(page) != (ulong)number)
                throw new CorruptStoreException($"'{path}': page {number} (offset {number * Page.Bytes}) says that it is page {Page.Number(page)}.");
            if (Page.Type(page) == PageType.Overflow && Page.ValueLength(page) > Page.ValueBytesMax)
                throw new CorruptStoreException($"'{path}': page {number} (offset {number * Page.Bytes}) holds a value of {Page.ValueLength(page)} bytes.");
            _run = number;
            _pagesLeft = Page.Type(page) == PageType.Overflow ? Page.RunPages(Page.ValueLength(page)) : 1;
            _expected = Page.Checksum(page);
            _state = Crc32C.Extend(uint.MaxValue, bytes[sizeof(uint)..]);
        }
    }
}
