using KvCluster.Storage.DataFile;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;


namespace KvCluster.Tests.Storage.Pages;

/// <summary>A data file in its own directory, which is removed with it. The checkpoint's three steps run on the caller's thread.</summary>
internal sealed class DataFile : IDisposable
{
    private readonly PageStoreOptions _options;
    private readonly TemporaryDirectory _directory = new();

    public DataFile(PageStoreOptions? options = null)
    {
        _options = options ?? new PageStoreOptions { MapBytes = 4L << 30, SnapshotsMax = 64 };
        Pages = PageStore.Create(LocalDisk.Instance, FilePath, _options, new byte[16]);
    }

    public string FilePath => Path.Combine(_directory.Path, "data");

    public PageStore Pages { get; private set; }

    /// <summary>Closes the file and opens it again. Anything that no checkpoint covers is lost.</summary>
    public void Reopen()
    {
        Pages.Dispose();
        Pages = PageStore.Open(LocalDisk.Instance, FilePath, _options);
    }

    public Checkpoint? Begin() =>
        Pages.BeginCheckpoint(etag => new CheckpointPosition(etag, new JournalPosition(etag.Change, 4096), (uint)etag.Change), Etag.MaxValue);

    /// <summary>Writes a whole checkpoint of the published state.</summary>
    public void Checkpoint()
    {
        if (Begin() is not { } checkpoint)
            return;
        checkpoint.Write();
        Pages.FinishCheckpoint(checkpoint);
    }

    /// <summary>A store made from the pages of a pinned checkpoint, as another replica makes it.</summary>
    public PageStore Copy(CheckpointPin pin)
    {
        var path = Path.Combine(_directory.Path, "copy");
        File.Delete(path);
        using (var target = LocalDisk.Instance.Open(path, new StorageFileOptions(StorageFileMode.CreateNew)))
        {
            target.Resize(pin.FileBytes);
            foreach (var run in pin.Runs)
            {
                using var pages = new AlignedBuffer((int)run.Count * Page.Bytes);
                pin.ReadPages(run.First, pages.Span);
                target.Write(pages.Span, run.First * Page.Bytes);
            }
        }
        return PageStore.Open(LocalDisk.Instance, path, _options);
    }

    public void Dispose()
    {
        Pages.Dispose();
        _directory.Dispose();
    }
}
