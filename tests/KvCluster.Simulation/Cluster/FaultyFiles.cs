using KvCluster.Storage.Files;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Pages;

namespace KvCluster.Simulation.Cluster;

/// <summary>
/// A disk as an engine with one of the storage bugs uses it: a necessary sync or write does not happen. The engine itself is unchanged. Runs on the
/// run's thread.
/// </summary>
internal sealed class FaultyFiles : IFileSystem
{
    private readonly IFileSystem _files;
    private readonly InjectedBug _bug;

    private FaultyFiles(IFileSystem files, InjectedBug bug) => (_files, _bug) = (files, bug);

    /// <summary>The disk as an engine with this bug uses it, or the disk itself for other bugs.</summary>
    public static IFileSystem Of(IFileSystem files, InjectedBug bug) =>
        bug is >= InjectedBug.NoSyncBeforeMeta and <= InjectedBug.DirectoryNotSynced ? new FaultyFiles(files, bug) : files;

    public IStorageFile Open(string path, StorageFileOptions options)
    {
        var isJournal = path.Contains("/journal/", StringComparison.Ordinal);
        var isData = path.EndsWith("/data", StringComparison.Ordinal);
        return _bug switch
        {
            InjectedBug.JournalNotSynced when isJournal => Unsynced(),
            InjectedBug.ControlNotSynced when path.EndsWith("/control", StringComparison.Ordinal) => Unsynced(),
            InjectedBug.NoDataSyncAtInstall when isData && path.Contains("/incoming/", StringComparison.Ordinal) => Unsynced(),
            InjectedBug.NoSyncBeforeMeta when isData => new FaultyFile(_files.Open(path, options), _bug),
            InjectedBug.NoEraseFront when isJournal => new FaultyFile(_files.Open(path, options), _bug),
            _ => _files.Open(path, options),
        };

        FaultyFile Unsynced() => new(_files.Open(path, options with { DataSync = false }), _bug);
    }

    public bool FileExists(string path) => _files.FileExists(path);

    public bool DirectoryExists(string path) => _files.DirectoryExists(path);

    public IReadOnlyList<string> List(string directory) => _files.List(directory);

    public void CreateDirectory(string path) => _files.CreateDirectory(path);

    public void Delete(string path) => _files.Delete(path);

    public void DeleteDirectory(string path) => _files.DeleteDirectory(path);

    public void Rename(string from, string to) => _files.Rename(from, to);

    public long AvailableBytes(string directory) => _files.AvailableBytes(directory);

    public void SyncDirectory(string path)
    {
        if (_bug != InjectedBug.DirectoryNotSynced)
            _files.SyncDirectory(path);
    }

    /// <summary>A file on which a sync, or a write of zeros over a retired segment's front, does not happen.</summary>
    private sealed unsafe class FaultyFile(IStorageFile file, InjectedBug bug) : IStorageFile
    {
        private const long MetaBytes = 2 * Page.Bytes;
        private const int FrontBytes = 2 * SegmentHeader.BlockBytes;

        private bool _hasWrittenMeta;

        public string Path => file.Path;

        public long Length => file.Length;

        public long AllocatedBytes => file.AllocatedBytes;

        public bool IsDirect => file.IsDirect;

        private bool Syncs => bug switch
        {
            InjectedBug.NoSyncBeforeMeta => _hasWrittenMeta,
            InjectedBug.NoEraseFront => true,
            _ => false,
        };

        public void Resize(long length) => file.Resize(length);

        public int Read(Span<byte> destination, long offset) => file.Read(destination, offset);

        public void Write(ReadOnlySpan<byte> source, long offset)
        {
            _hasWrittenMeta |= offset < MetaBytes;
            // The front of a new file is zeros already, so nothing would be lost there.
            if (bug != InjectedBug.NoEraseFront || offset != 0 || source.Length > FrontBytes || source.ContainsAnyExcept((byte)0))
                file.Write(source, offset);
        }

        public void Sync()
        {
            if (Syncs)
                file.Sync();
            _hasWrittenMeta = false;
        }

        public bool TryMakeHole(long offset, long length) => file.TryMakeHole(offset, length);

        public bool TryFindHole(long offset, long end, out long holeOffset, out long holeEnd) => file.TryFindHole(offset, end, out holeOffset, out holeEnd);

        public void BeginWriteOut(long offset, long length) => file.BeginWriteOut(offset, length);

        public byte* Map(long offset, long bytes) => file.Map(offset, bytes);

        public bool TryBeginReadIntoMap(byte* memory, long offset, long bytes) => file.TryBeginReadIntoMap(memory, offset, bytes);

        public bool TryTellInMemory(byte* memory, long offset, long bytes, Span<byte> pages) => file.TryTellInMemory(memory, offset, bytes, pages);

        public void ReadIntoMap(byte* memory, long offset, long bytes, bool isNext) => file.ReadIntoMap(memory, offset, bytes, isNext);

        public bool ReadsAhead => file.ReadsAhead;

        public void Dispose() => file.Dispose();
    }
}
