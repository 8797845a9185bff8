using KvCluster.Storage.Files;

namespace KvCluster.Disk;

/// <summary>
/// A disk in memory that knows which data is synced. It loses power at a chosen call, or on request, and then drops, keeps, reorders or tears
/// unsynced writes. Names are durable only after a sync of their directory; of the others any subset remains. While it runs it can refuse calls, be
/// full, have unreadable sectors, and fail in each way of <see cref="DiskFault"/>. For tests of the engine and for the simulation. Any thread, under
/// one lock.
/// </summary>
internal sealed class SimulatedDisk : IFileSystem, IDisposable
{
    private readonly Lock _lock = new();
    private readonly SimulatedDirectory _root = new();
    private readonly List<SimulatedFile> _open = [];
    private readonly int[] _faults = new int[Enum.GetValues<DiskFault>().Length];
    private bool _off;

    /// <summary>The number of calls so far that change the disk: writes, syncs, lengths, names.</summary>
    public int Calls { get; private set; }

    /// <summary>The call during which power is lost. It counts as unsynced. 0 means never.</summary>
    public int CrashAtCall { get; set; }

    /// <summary>
    /// Whether only the process ends at the call at which power would be lost (<see cref="RestartProcess"/>). A direct write that has begun then arrives.
    /// </summary>
    public bool EndsOnlyProcess { get; set; }

    /// <summary>The capacity for all files together. Beyond it the disk is full.</summary>
    public long CapacityBytes { get; set; } = long.MaxValue;

    /// <summary>Whether a file that cannot grow as wanted keeps what there was space for, as where that is not given back.</summary>
    public bool KeepsPartOfGrowth { get; set; } = true;

    /// <summary>Called before each call with operation and path. An exception that it returns is thrown instead.</summary>
    public Func<string, string, StorageIoException?>? Refuse { get; set; }

    /// <summary>
    /// Chooses the fault of each call, including reads and mappings. Null means no faults. Called under the disk's lock, so it must not call the disk.
    /// </summary>
    public Func<DiskCall, DiskFault>? Fault { get; set; }

    /// <summary>
    /// Whether files can be opened for direct I/O. Their reads and writes are refused unless memory, offset and length are multiples of 4 KiB.
    /// </summary>
    public bool HasDirect { get; set; } = true;

    /// <summary>Whether a directory is removed name by name, as systems do it, so that a power loss may leave some of its files.</summary>
    public bool RemovesNameByName { get; set; }

    /// <summary>
    /// Whether syncs of files do nothing. For what a process that has died would not have done any more, while a test disposes of its objects.
    /// </summary>
    public bool SyncsNothing { get; set; }

    /// <summary>Whether files can have holes.</summary>
    public bool HasHoles { get; set; } = true;

    /// <summary>Called when a write into this path has begun and changed nothing yet, for concurrent work.</summary>
    public Action<string>? DuringWrite { get; set; }

    /// <summary>
    /// Called with offset and length when a part of a mapped file will be read soon. Returns whether it is not in memory; null means that it is.
    /// </summary>
    public Func<long, long, bool>? BeginsRead { get; set; }

    /// <summary>Says whether the part of a mapped file at an offset is in memory; null means that the system does not tell.</summary>
    public Func<long, bool>? IsInMemory { get; set; }

    /// <summary>Whether the system reads ahead by itself when reads follow each other.</summary>
    public bool ReadsAhead { get; set; }

    /// <summary>Called with the offset of a part of a file that is read into a mapping as the next one of a scan.</summary>
    public Action<long>? ReadsNext { get; set; }

    /// <summary>Whether power is lost.</summary>
    public bool IsOff => _off;

    /// <summary>The size of all files.</summary>
    public long UsedBytes { get; private set; }

    /// <summary>The paths of open files, in the order in which they were opened.</summary>
    public IReadOnlyList<string> OpenPaths
    {
        get
        {
            lock (_lock)
                return [.. _open.Select(file => file.Path)];
        }
    }

    /// <summary>How often <see cref="Fault"/> had this effect. A fault that a call cannot have, such as a lost sync of a directory, does not count.</summary>
    public int CountOf(DiskFault fault)
    {
        lock (_lock)
            return _faults[(int)fault];
    }

    /// <summary>
    /// Cuts the power if it is still on, applies the chosen effect to unsynced data, and restarts the machine with no file open. The same seed has
    /// the same effect.
    /// </summary>
    public void Restart(UnsyncedWrites unsynced, int seed = 0)
    {
        lock (_lock)
        {
            foreach (var file in _open.ToArray())
                file.Close();
            _open.Clear();
            _root.Settle(unsynced, new Random(seed));
            UsedBytes = _root.Bytes();
            _off = false;
            CrashAtCall = 0;
        }
    }

    /// <summary>Restarts the process that has ended, and nothing else: what it wrote stays, synced or not.</summary>
    public void RestartProcess()
    {
        lock (_lock)
        {
            foreach (var file in _open.ToArray())
                file.Close();
            _open.Clear();
            _off = false;
            CrashAtCall = 0;
        }
    }

    /// <summary>Another disk of the same kind with the same content, all of it durable.</summary>
    public SimulatedDisk Copy()
    {
        lock (_lock)
        {
            var copy = new SimulatedDisk { HasDirect = HasDirect, HasHoles = HasHoles, RemovesNameByName = RemovesNameByName };
            _root.CopyTo(copy._root);
            copy.UsedBytes = copy._root.Bytes();
            return copy;
        }
    }

    /// <summary>Creates a directory and its parents, durably.</summary>
    public void CreateDirectories(string path)
    {
        var made = "/";
        foreach (var part in Split(path))
        {
            var parent = made;
            made = Path.Combine(parent, part);
            CreateDirectory(made);
            SyncDirectory(parent);
        }
    }

    /// <summary>Flips a bit behind the engine's back, as failing media do.</summary>
    public void FlipBit(string path, long offset)
    {
        lock (_lock)
            Find(path).FlipBit(offset);
    }

    /// <summary>
    /// Makes the sectors of 512 bytes that contain these bytes unreadable. Reads of them fail, also through a map, until the whole sectors are
    /// rewritten. Durable, as on failing media.
    /// </summary>
    public void MakeUnreadable(string path, long offset, long bytes)
    {
        lock (_lock)
            Find(path).MakeUnreadable(offset, bytes);
    }

    /// <summary>The bytes of a file as the running machine sees them.</summary>
    public byte[] ReadAll(string path)
    {
        lock (_lock)
            return Find(path).Content.ToArray();
    }

    /// <summary>Replaces a file's bytes, durably.</summary>
    public void WriteAll(string path, ReadOnlySpan<byte> content)
    {
        lock (_lock)
        {
            var node = Find(path);
            node.Resize(content.Length);
            node.Write(content, 0, durable: false);
            node.Sync();
        }
    }

    /// <inheritdoc/>
    public IStorageFile Open(string path, StorageFileOptions options)
    {
        lock (_lock)
        {
            var (directory, name) = Parent(path);
            var node = directory.Files.GetValueOrDefault(name);
            if (options.Mode != StorageFileMode.CreateNew)
            {
                ThrowIfOff();
                node = node ?? throw new StorageIoException("open", path, "no such file");
            }
            else
            {
                if (node is not null)
                    throw new StorageIoException("open", path, "the file is there already");
                node = new SimulatedNode();
                Change("Create", path, () => directory.Set(name, node));
            }
            var file = new SimulatedFile(this, path, node, options.DataSync, options.Direct && HasDirect);
            _open.Add(file);
            return file;
        }
    }

    /// <inheritdoc/>
    public bool FileExists(string path)
    {
        lock (_lock)
        {
            ThrowIfOff();
            return TryParent(path, out var directory, out var name) && directory.Files.ContainsKey(name);
        }
    }

    /// <inheritdoc/>
    public bool DirectoryExists(string path)
    {
        lock (_lock)
        {
            ThrowIfOff();
            return TryDirectory(Split(path), out _);
        }
    }

    /// <inheritdoc/>
    public IReadOnlyList<string> List(string directory)
    {
        lock (_lock)
        {
            ThrowIfOff();
            var node = Directory(directory);
            return [.. node.Files.Keys.Concat(node.Directories.Keys).Order(StringComparer.Ordinal)];
        }
    }

    /// <inheritdoc/>
    public void CreateDirectory(string path)
    {
        lock (_lock)
        {
            if (TryDirectory(Split(path), out _))
                return;
            var (parent, name) = Parent(path);
            Change("Create directory", path, () => parent.Set(name, new SimulatedDirectory()));
        }
    }

    /// <inheritdoc/>
    public void Delete(string path)
    {
        lock (_lock)
        {
            var (parent, name) = Parent(path);
            if (parent.Files.ContainsKey(name))
                Change("Delete", path, () => parent.Remove(name));
        }
    }

    /// <inheritdoc/>
    public void DeleteDirectory(string path)
    {
        lock (_lock)
        {
            if (!TryDirectory(Split(path), out var directory))
                return;
            if (RemovesNameByName)
            {
                foreach (var child in directory.Directories.Keys.ToArray())
                    DeleteDirectory(Path.Combine(path, child));
                foreach (var file in directory.Files.Keys.ToArray())
                    Delete(Path.Combine(path, file));
            }
            var (parent, name) = Parent(path);
            Change("Delete directory", path, () => parent.Remove(name));
        }
    }

    /// <inheritdoc/>
    public void Rename(string from, string to)
    {
        lock (_lock)
        {
            var (parent, name) = Parent(from);
            var (target, newName) = Parent(to);
            if (!parent.Files.ContainsKey(name) && !parent.Directories.ContainsKey(name))
                throw new StorageIoException("rename", from, "no such file");
            Change("Rename", from, () =>
            {
                if (ReferenceEquals(parent, target))
                    parent.Rename(name, newName);
                else
                    parent.Move(name, target, newName);
            });
        }
    }

    /// <inheritdoc/>
    public long AvailableBytes(string directory)
    {
        lock (_lock)
            return CapacityBytes - UsedBytes;
    }

    /// <inheritdoc/>
    public void SyncDirectory(string path)
    {
        lock (_lock)
        {
            Count("Sync directory", path);
            Perform(new DiskCall("Sync directory", path), Directory(path).Sync);
        }
    }

    /// <summary>Frees maps.</summary>
    public void Dispose()
    {
        lock (_lock)
        {
            foreach (var file in _open.ToArray())
                file.Close();
            _open.Clear();
        }
    }

    internal void Closed(SimulatedFile file)
    {
        lock (_lock)
            _open.Remove(file);
    }

    internal int Read(SimulatedNode node, string path, Span<byte> destination, long offset)
    {
        lock (_lock)
        {
            var count = (int)Math.Clamp(node.Content.Length - offset, 0, destination.Length);
            CheckReadable(node, path, offset, count);
            node.Content.Slice((int)Math.Min(offset, node.Content.Length), count).CopyTo(destination);
            return count;
        }
    }

    /// <summary>A read of mapped memory, which shows the content anyway. It only fails or does nothing.</summary>
    internal void ReadIntoMap(SimulatedNode node, string path, long offset, long bytes)
    {
        lock (_lock)
            CheckReadable(node, path, offset, (int)Math.Clamp(node.Content.Length - offset, 0, bytes));
    }

    /// <summary>Fails if the start of a write-out does, whose error the next sync does not report again.</summary>
    internal void CheckWriteOut(SimulatedNode node, string path)
    {
        lock (_lock)
        {
            var fault = Choose(new DiskCall("Write out", path));
            if (fault is DiskFault.None or DiskFault.LostWrite or DiskFault.MisdirectedWrite)
                return;
            if (!IsAfterwards(fault))
                node.LoseUnsynced();
            throw Failed("Write out", path);
        }
    }

    /// <summary>Fails if a mapping does.</summary>
    internal void CheckMap(string path)
    {
        lock (_lock)
            ThrowIfFaulty(new DiskCall("Map", path));
    }

    internal void Write(SimulatedNode node, string path, ReadOnlySpan<byte> source, long offset, bool dataSync, bool isCached)
    {
        DuringWrite?.Invoke(path);
        lock (_lock)
        {
            if (node.BytesToAllocate(offset, source.Length) is > 0 and var bytes && UsedBytes + bytes > CapacityBytes)
                throw NoRoom("Write", path);
            var isLast = CountsDown("Write", path);
            var fault = Choose(new DiskCall("Write", path, offset, source.Length));
            if (fault == DiskFault.LostWrite)
                source = default;
            else if (fault == DiskFault.MisdirectedWrite)
                offset = ElsewhereIn(node, offset, ref source);
            else if (fault == DiskFault.SyncLosesData && dataSync && isCached)
                dataSync = false;
            else if (fault is DiskFault.ShortWrite or DiskFault.NoRoom)
                source = source[..(source.Length / 2 / SimulatedNode.SectorBytes * SimulatedNode.SectorBytes)];
            else if (fault != DiskFault.None && !IsAfterwards(fault))
                throw Failed("Write", path);
            if (source.Length > 0)
            {
                UsedBytes += node.BytesToAllocate(offset, source.Length);
                node.Write(source, offset, durable: dataSync && (!isLast || (EndsOnlyProcess && !isCached)));
            }
            if (isLast)
                throw PowerOff();
            if (fault == DiskFault.SyncLosesData)
                node.LoseUnsynced();
            if (fault is DiskFault.ShortWrite or DiskFault.NoRoom or DiskFault.SyncLosesData || IsAfterwards(fault))
                throw Failed("Write", path, fault);
        }
    }

    internal bool TryMakeHole(SimulatedNode node, string path, long offset, long length)
    {
        lock (_lock)
        {
            if (!HasHoles)
                return false;
            var isLast = CountsDown("Make hole", path);
            var fault = Choose(new DiskCall("Make hole", path, offset, (int)length));
            if (fault == DiskFault.NoRoom)
                return true;
            if (!IsAfterwards(fault))
                ThrowIfFailed(fault, "Make hole", path);
            UsedBytes -= node.MakeHole(offset, length);
            if (isLast)
                throw PowerOff();
            // That there was no space for it is no error.
            if (fault != DiskFault.NoRoomAfterwards)
                ThrowIfFailed(fault, "Make hole", path);
            return true;
        }
    }

    internal void Resize(SimulatedNode node, string path, long length)
    {
        lock (_lock)
        {
            var isLast = CountsDown("Resize", path);
            var growth = length - node.Content.Length;
            var fault = Choose(new DiskCall("Resize", path));
            if (growth > 0 && UsedBytes + growth > CapacityBytes)
            {
                fault = DiskFault.NoRoom;
                growth = KeepsPartOfGrowth ? Math.Max(0, CapacityBytes - UsedBytes) : 0;
            }
            else if (fault == DiskFault.NoRoom)
                growth = KeepsPartOfGrowth && growth > 0 ? growth / 2 : 0;
            else if (!IsAfterwards(fault))
                ThrowIfFailed(fault, "Resize", path);
            growth -= growth > 0 && fault == DiskFault.NoRoom ? growth % AlignedBuffer.Alignment : 0;
            UsedBytes -= node.AllocatedBytes;
            if (growth != 0)
                node.Resize(node.Content.Length + growth);
            UsedBytes += node.AllocatedBytes;
            if (isLast)
                throw PowerOff();
            ThrowIfFailed(fault, "Resize", path);
        }
    }

    internal void Sync(SimulatedNode node, string path)
    {
        lock (_lock)
        {
            if (SyncsNothing)
                return;
            Count("Sync", path);
            var fault = Choose(new DiskCall("Sync", path));
            if (fault == DiskFault.SyncLosesData)
                node.LoseUnsynced();
            if (!IsAfterwards(fault))
                ThrowIfFailed(fault, "Sync", path);
            node.Sync();
            ThrowIfFailed(fault, "Sync", path);
        }
    }

    /// <summary>The kernel's error for direct I/O that is not aligned.</summary>
    internal static StorageIoException NotAligned(string operation, string path) =>
        new(VerbOf(operation), path, "invalid argument: direct I/O that is not aligned");

    private static string[] Split(string path) => path.Split(Path.DirectorySeparatorChar, StringSplitOptions.RemoveEmptyEntries);

    /// <summary>Counts a call that has no effect if power is lost during it.</summary>
    private void Count(string operation, string path)
    {
        if (CountsDown(operation, path))
            throw PowerOff();
    }

    /// <summary>Counts a call that is an unsynced change if power is lost during it.</summary>
    private void Change(string operation, string path, Action change)
    {
        var isLast = CountsDown(operation, path);
        Perform(new DiskCall(operation, path), () =>
        {
            change();
            UsedBytes = _root.Bytes();
            if (isLast)
                throw PowerOff();
        });
    }

    /// <summary>Makes a change that either happens or does not, and fails as chosen.</summary>
    private void Perform(DiskCall call, Action change)
    {
        var fault = Choose(call);
        if (!IsAfterwards(fault))
            ThrowIfFailed(fault, call.Operation, call.Path);
        change();
        ThrowIfFailed(fault, call.Operation, call.Path);
    }

    private static bool IsAfterwards(DiskFault fault) => fault is DiskFault.NoRoomAfterwards or DiskFault.ErrorAfterwards;

    private static StorageIoException Failed(string operation, string path, DiskFault fault = DiskFault.Error) =>
        fault is DiskFault.NoRoom or DiskFault.NoRoomAfterwards ? NoRoom(operation, path) : new(VerbOf(operation), path, "input/output error");

    private static StorageIoException NoRoom(string operation, string path) => new(VerbOf(operation), path, "no space left", isDiskFull: true);

    /// <summary>The name of a call in the message of a <see cref="StorageIoException"/>.</summary>
    private static string VerbOf(string operation) => $"{char.ToLowerInvariant(operation[0])}{operation[1..]}";

    /// <summary>The place within the file to which a misdirected write goes. If there is none, the bytes are lost.</summary>
    private static long ElsewhereIn(SimulatedNode node, long offset, ref ReadOnlySpan<byte> source)
    {
        const int distance = 8 << 10;
        if (offset >= distance)
            return offset - distance;
        if (offset + distance + source.Length <= node.Content.Length)
            return offset + distance;
        source = default;
        return offset;
    }

    private void CheckReadable(SimulatedNode node, string path, long offset, int count)
    {
        ThrowIfOff();
        ThrowIfFaulty(new DiskCall("Read", path, offset, count));
        if (node.IsUnreadable(offset, count))
            throw Failed("Read", path);
    }

    private DiskFault Choose(DiskCall call)
    {
        var fault = Fault?.Invoke(call) ?? DiskFault.None;
        var applies = fault switch
        {
            DiskFault.LostWrite or DiskFault.MisdirectedWrite => call.Operation == "Write",
            _ => true,
        };
        if (applies)
            _faults[(int)fault]++;
        return fault;
    }

    /// <summary>For calls that either succeed or fail.</summary>
    private void ThrowIfFaulty(DiskCall call) => ThrowIfFailed(Choose(call), call.Operation, call.Path);

    private static void ThrowIfFailed(DiskFault fault, string operation, string path)
    {
        if (fault is not (DiskFault.None or DiskFault.LostWrite or DiskFault.MisdirectedWrite))
            throw Failed(operation, path, fault);
    }

    private bool CountsDown(string operation, string path)
    {
        ThrowIfOff();
        if (Refuse?.Invoke(operation, path) is { } refusal)
            throw refusal;
        return ++Calls == CrashAtCall;
    }

    private SimulatedCrashException PowerOff()
    {
        _off = true;
        return new SimulatedCrashException();
    }

    private void ThrowIfOff()
    {
        if (_off)
            throw new SimulatedCrashException();
    }

    private SimulatedNode Find(string path)
    {
        var (directory, name) = Parent(path);
        return directory.Files.GetValueOrDefault(name) ?? throw new StorageIoException("open", path, "no such file");
    }

    private (SimulatedDirectory Directory, string Name) Parent(string path) =>
        TryParent(path, out var directory, out var name) ? (directory, name) : throw new StorageIoException("look up", path, "no such directory");

    private bool TryParent(string path, out SimulatedDirectory directory, out string name)
    {
        var parts = Split(path);
        name = parts[^1];
        return TryDirectory(parts.AsSpan(..^1), out directory);
    }

    private SimulatedDirectory Directory(string path) =>
        TryDirectory(Split(path), out var directory) ? directory : throw new StorageIoException("look up", path, "no such directory");

    private bool TryDirectory(ReadOnlySpan<string> parts, out SimulatedDirectory directory)
    {
        directory = _root;
        foreach (var part in parts)
        {
            if (!directory.Directories.TryGetValue(part, out var next))
                return false;
            directory = next;
        }
        return true;
    }
}
