using KvCluster.Storage.Files;

namespace KvCluster.Benchmarks.Engine;

/// <summary>
/// The local disk, whose durable writes, and so those of the journal, take longer by a fixed time and do not hinder each other: like a disk behind a network,
/// or one that turns and has a queue. Any thread.
/// </summary>
/// <param name="delay">By how much longer they take.</param>
internal sealed class SlowJournalDisk(TimeSpan delay) : IFileSystem
{
    private static readonly IFileSystem Disk = LocalDisk.Instance;

    public IStorageFile Open(string path, StorageFileOptions options) =>
        options.DataSync ? new SlowFile(Disk.Open(path, options), delay) : Disk.Open(path, options);

    public bool FileExists(string path) => Disk.FileExists(path);

    public bool DirectoryExists(string path) => Disk.DirectoryExists(path);

    public IReadOnlyList<string> List(string directory) => Disk.List(directory);

    public void CreateDirectory(string path) => Disk.CreateDirectory(path);

    public void Delete(string path) => Disk.Delete(path);

    public void DeleteDirectory(string path) => Disk.DeleteDirectory(path);

    public void Rename(string from, string to) => Disk.Rename(from, to);

    public long AvailableBytes(string directory) => Disk.AvailableBytes(directory);

    public void SyncDirectory(string path) => Disk.SyncDirectory(path);

    private sealed unsafe class SlowFile(IStorageFile file, TimeSpan delay) : IStorageFile
    {
        public string Path => file.Path;

        public long Length => file.Length;

        public long AllocatedBytes => file.AllocatedBytes;

        public bool IsDirect => file.IsDirect;

        public bool ReadsAhead => file.ReadsAhead;

        public void Resize(long length) => file.Resize(length);

        public int Read(Span<byte> destination, long offset) => file.Read(destination, offset);

        public void Write(ReadOnlySpan<byte> source, long offset)
        {
            file.Write(source, offset);
            Thread.Sleep(delay);
        }

        public void Sync() => file.Sync();

        public bool TryMakeHole(long offset, long length) => file.TryMakeHole(offset, length);

        public bool TryFindHole(long offset, long end, out long holeOffset, out long holeEnd) => file.TryFindHole(offset, end, out holeOffset, out holeEnd);

        public void BeginWriteOut(long offset, long length) => file.BeginWriteOut(offset, length);

        public byte* Map(long offset, long bytes) => file.Map(offset, bytes);

        public void ReadIntoMap(byte* memory, long offset, long bytes, bool isNext) => file.ReadIntoMap(memory, offset, bytes, isNext);

        public bool TryBeginReadIntoMap(byte* memory, long offset, long bytes) => file.TryBeginReadIntoMap(memory, offset, bytes);

        public bool TryTellInMemory(byte* memory, long offset, long bytes, Span<byte> pages) => file.TryTellInMemory(memory, offset, bytes, pages);

        public void Dispose() => file.Dispose();
    }
}
