using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Verifies the checksums of pages in file order, each against its own header and number. This finds pages that were damaged on disk. An intact page that
/// belongs elsewhere, such as an outdated one, is only found by walking the whole tree. One thread at a time.
/// </summary>
internal sealed unsafe class PageOrderCheck(string path)
{
    private long _run;
    private int _pagesLeft;
    private uint _expected;
    private uint _state;

    /// <summary>Checks the next pages. Only the first page of a run has a header.</summary>
    /// <exception cref="CorruptStoreException">A page is not what was written.</exception>
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
                throw new CorruptStoreException($"'{path}': page {_run} (offset {_run * Page.Bytes}) does not match its checksum {_expected:x8}.");
        }
    }

    private void Begin(long number, ReadOnlySpan<byte> bytes)
    {
        fixed (byte* page = bytes)
        {
            if (Page.Number(page) != (ulong)number)
                throw new CorruptStoreException(
                    $"'{path}': page {number} (offset {number * Page.Bytes}) has the page number {Page.Number(page)} in its header.");
            if (Page.Type(page) == PageType.Overflow && Page.ValueLength(page) > Page.ValueBytesMax)
                throw new CorruptStoreException(
                    $"'{path}': page {number} (offset {number * Page.Bytes}) has the invalid value length {Page.ValueLength(page)}.");
            _run = number;
            _pagesLeft = Page.Type(page) == PageType.Overflow ? OverflowRun.PagesFor(Page.ValueLength(page)) : 1;
            _expected = Page.Checksum(page);
            _state = Crc32C.Extend(uint.MaxValue, bytes[sizeof(uint)..]);
        }
    }
}
