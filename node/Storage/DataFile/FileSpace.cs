using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// The space that the data file takes from the file system: it grows before pages are placed in it, and gives back what is free at its end and in long
/// holes. Checkpoint executor, except the size. A failure stops the engine unless the disk is full.
/// </summary>
internal sealed class FileSpace(IStorageFile file, PageSpace space)
{
    /// <summary>Holes made after one checkpoint. The rest follows with the next ones, so that no checkpoint takes much longer than its pages.</summary>
    private const int HolesMax = 256;
    private long _bytes = file.Length;
    private bool _makesHoles = true;
    private bool _knowsHoles;

    /// <summary>Length of the file. Any thread.</summary>
    public long Bytes => Volatile.Read(ref _bytes);

    /// <summary>
    /// Grows the file to the wanted length, or to the needed length if the disk has no more space. Returns its length in pages.
    /// </summary>
    public long Grow(long pagesNeeded, long pagesWanted)
    {
        if (pagesNeeded > FreeMap.FilePagesMax)
            throw new StorageIoException("grow", file.Path, $"{pagesNeeded} pages are needed, but a file has at most {FreeMap.FilePagesMax}", isDiskFull: true);
        pagesWanted = Math.Min(pagesWanted, FreeMap.FilePagesMax);
        try
        {
            space.Reserve(pagesWanted);
        }
        catch (StorageIoException exception)
        {
            // What can be mapped stays readable, so this is like a disk that is full.
            throw new StorageIoException("grow", file.Path, exception.Message, isDiskFull: true, exception);
        }
        try
        {
            if (file.Length < pagesWanted * Page.Bytes)
                file.Resize(pagesWanted * Page.Bytes);
        }
        catch (StorageIoException exception) when (exception.IsDiskFull && pagesNeeded < pagesWanted)
        {
            pagesWanted = pagesNeeded;
            if (file.Length < pagesNeeded * Page.Bytes)
                file.Resize(pagesNeeded * Page.Bytes);
        }
        Volatile.Write(ref _bytes, file.Length);
        return pagesWanted;
    }

    /// <summary>
    /// Before the first checkpoint: notes which free pages have no space, so that they are taken last. Looked for in long runs only, since shorter holes are
    /// not made.
    /// </summary>
    public void FindHoles(FreeMap map)
    {
        if (_knowsHoles)
            return;
        _knowsHoles = true;
        foreach (var run in map.LongRuns())
        {
            var end = (run.First + run.Count) * Page.Bytes;
            for (var from = run.First * Page.Bytes; file.TryFindHole(from, end, out var hole, out from);)
            {
                // A page counts if its beginning has no space.
                var first = (hole + Page.Bytes - 1) / Page.Bytes;
                if (((from + Page.Bytes - 1) / Page.Bytes) - first is > 0 and var count)
                    map.AddHole(new PageRun(first, count));
            }
        }
    }

    /// <summary>
    /// Gives back what the newest map does not need. Called when its meta page is durable, since until then the other map counts after a crash (S1, S8).
    /// Nothing here has to be durable: a crash may undo it and leave a longer file, whose rest is free.
    /// </summary>
    /// <param name="map">The newest map.</param>
    /// <param name="pages">The length that either meta page records, whichever is greater. A file that is shorter than its meta page says is refused.</param>
    public void GiveBack(FreeMap map, long pages)
    {
        if (file.Length > pages * Page.Bytes)
        {
            try
            {
                file.Resize(pages * Page.Bytes);
            }
            catch (StorageIoException exception) when (exception.IsDiskFull)
            {
                // A copy-on-write file system may need space even for this. The checkpoint is durable; the next one cuts the file.
            }
            Volatile.Write(ref _bytes, file.Length);
        }
        if (!_makesHoles)
            return;
        foreach (var hole in map.TakeHoles(HolesMax))
            _makesHoles &= file.TryMakeHole(hole.First * Page.Bytes, hole.Count * Page.Bytes);
    }
}
