using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;

namespace KvCluster.Storage.DataFile;

/// <summary>
/// The space that the data file takes from the file system: it grows before pages are placed in it, and gives back what is free at its end and in long
/// holes. Checkpoint executor, except the size and the choice of what is given back. A failure stops the engine unless the disk is full.
/// </summary>
internal sealed class FileSpace(IStorageFile file, PageSpace space)
{
    private long _bytes = file.Length;
    private bool _makesHoles = true;
    private bool _cutsEnd = true;
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
        finally
        {
            // A file that could not grow as wanted may have grown in part.
            Volatile.Write(ref _bytes, file.Length);
        }
        return pagesWanted;
    }

    /// <summary>
    /// Called before each checkpoint. The first time it notes which free pages have no space, so that they are taken last: two calls for each free run, if the
    /// file has holes.
    /// </summary>
    public void Prepare(FreeMap map)
    {
        _cutsEnd = true;
        if (_knowsHoles)
            return;
        _knowsHoles = true;
        if (file.AllocatedBytes >= file.Length)
            return;
        foreach (var run in map.ReusableRuns())
        {
            var end = (run.First + run.Count) * Page.Bytes;
            for (var from = run.First * Page.Bytes; file.TryFindHole(from, end, out var hole, out from);)
            {
                // A page is part of the hole if its beginning has no space.
                var first = (hole + Page.Bytes - 1) / Page.Bytes;
                if (((from + Page.Bytes - 1) / Page.Bytes) - first is > 0 and var count)
                    map.AddHole(new PageRun(first, count));
            }
        }
    }

    /// <summary>
    /// Chooses the part of the file that is given back next: of what is beyond its end, or a hole. Neither meta page needs it. Writer, while no checkpoint is
    /// in progress; the part is given back before the next one is written.
    /// </summary>
    /// <param name="map">The newest map.</param>
    /// <param name="pages">The length that either meta page records, whichever is greater. A file that is shorter than its meta page says is refused
    /// (S8).</param>
    /// <param name="holePagesMin">The shortest run of free pages that becomes a hole.</param>
    /// <param name="part">The part. Empty if it is not known yet whether there is one.</param>
    /// <returns>False if there is nothing to give back before the next checkpoint.</returns>
    public bool TryChooseSurplus(FreeMap map, long pages, int holePagesMin, out FilePart part)
    {
        var end = pages * Page.Bytes;
        if (_cutsEnd && Bytes > end)
        {
            var offset = Math.Max(end, Bytes - ((long)FreeMap.HolePagesMax * Page.Bytes));
            part = new FilePart(offset, Bytes - offset, IsEnd: true);
            return true;
        }
        part = default;
        if (!_makesHoles || !map.TryTakeHole(holePagesMin, out var hole))
            return false;
        part = new FilePart(hole.First * Page.Bytes, hole.Count * Page.Bytes, IsEnd: false);
        return true;
    }

    /// <summary>Gives a part back. Nothing here has to be durable: a crash may undo it and leave a longer file, whose rest is free.</summary>
    public void GiveBack(FilePart part)
    {
        if (part.IsEnd)
        {
            try
            {
                file.Resize(part.Offset);
            }
            catch (StorageIoException exception) when (exception.IsDiskFull)
            {
                // A copy-on-write file system may need space even for this. It is tried again after the next checkpoint.
                _cutsEnd = false;
            }
            Volatile.Write(ref _bytes, file.Length);
        }
        else
        {
            _makesHoles &= file.TryMakeHole(part.Offset, part.Bytes);
        }
    }
}

/// <summary>A part of the data file that is not needed.</summary>
/// <param name="Offset">Where it begins, in bytes.</param>
/// <param name="Bytes">Its length.</param>
/// <param name="IsEnd">Whether it is beyond the last page, so that the file can be cut.</param>
internal readonly record struct FilePart(long Offset, long Bytes, bool IsEnd);
