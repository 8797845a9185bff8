using System.Buffers.Binary;
using KvCluster.Storage.Control;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Recovery;

namespace KvCluster.Storage.Inspection;

/// <summary>
/// The directory of a replica that no process uses, opened as far as it can be read, also where the engine would refuse it. Changes nothing. One thread.
/// </summary>
internal sealed class StoppedReplica : IDisposable
{
    private readonly List<uint> _states;
    private IStorageFile? _data;

    private StoppedReplica(IFileSystem files, StoreLayout layout, List<uint> states)
    {
        (Files, Layout, _states) = (files, layout, states);
        Quarantined = QuarantineMark.TryRead(files, layout);
        HasControlFile = files.FileExists(layout.Control);
        if (HasControlFile)
            Slots = ControlFile.ReadSlots(files, layout.Control);
        Control = Slots.OrderByDescending(static slot => slot.Sequence).Select(static slot => slot.State).FirstOrDefault(static state => state is not null);
    }

    /// <summary>The disk, on which nothing can be changed.</summary>
    public IFileSystem Files { get; }

    /// <summary>The names in the directory.</summary>
    public StoreLayout Layout { get; }

    /// <summary>Why the replica is quarantined; null if it is not.</summary>
    public string? Quarantined { get; }

    /// <summary>Whether there is a control file.</summary>
    public bool HasControlFile { get; }

    /// <summary>The slots of the control file; one without a state is damaged.</summary>
    public ControlSlot[] Slots { get; } = new ControlSlot[2];

    /// <summary>The newest state of the control file; null if there is none.</summary>
    public ControlState? Control { get; }

    /// <summary>The current state directory; null if there is none.</summary>
    public string? State => _states.Count > 0 ? Layout.State(_states[^1]) : null;

    /// <summary>State directories that the next open deletes.</summary>
    public IEnumerable<string> StatesLeft => _states.SkipLast(1).Select(Layout.State);

    /// <summary>The meta pages, by their place; null is one that is damaged.</summary>
    public MetaPage?[] Metas { get; } = new MetaPage?[2];

    /// <summary>The meta page with the greatest revision; null if both are damaged.</summary>
    public MetaPage? Newest => Metas.OfType<MetaPage>().MaxBy(static meta => meta.Revision);

    /// <summary>The other meta page; null if it is damaged.</summary>
    public MetaPage? Older => Metas.OfType<MetaPage>().FirstOrDefault(meta => meta != Newest);

    /// <summary>Why the engine would refuse the data file; null if it would not.</summary>
    public CorruptStoreException? DataFault { get; private set; }

    /// <summary>The pages of the data file; null if there is no such file.</summary>
    public PageSpace? Space { get; private set; }

    /// <summary>Length of the data file in bytes.</summary>
    public long DataBytes => _data?.Length ?? 0;

    /// <summary>The newest free map; null if it is damaged.</summary>
    public FreeMap? Free { get; private set; }

    /// <summary>The journal after the newest checkpoint; null if there is no state.</summary>
    public JournalScan? Journal { get; private set; }

    /// <summary>The row by which the engine would decide.</summary>
    public RecoveryRow Row => RecoveryDecisions.Decide(Facts);

    /// <summary>What the engine would find.</summary>
    public RecoveryFacts Facts => new()
    {
        Quarantined = Quarantined,
        HasControlFile = HasControlFile,
        ControlSlots = Slots.Count(static slot => slot.State is not null),
        HasState = State is not null,
        DataFault = DataFault,
        Journal = Journal,
        Meta = Newest?.CheckpointPosition.Etag ?? default,
        MetaChecksum = Newest?.CheckpointPosition.ChainChecksum ?? 0,
        Committed = Control?.Committed ?? default,
        Acknowledged = Control?.Acknowledged ?? default,
    };

    /// <summary>The replica's id and shard, from the control file, or else from the data file. Zero if both are lost.</summary>
    public (ReplicaId ReplicaId, ShardId Shard) Identity
    {
        get
        {
            if (Control is not null)
                return (Control.ReplicaId, Control.Shard);
            Span<byte> identity = stackalloc byte[16];
            BinaryPrimitives.WriteUInt128LittleEndian(identity, Newest?.Identity ?? default);
            return (new ReplicaId(BinaryPrimitives.ReadUInt64LittleEndian(identity)), new ShardId(BinaryPrimitives.ReadUInt32LittleEndian(identity[8..])));
        }
    }

    /// <summary>Opens a directory.</summary>
    /// <exception cref="NotAReplicaException">The directory is not that of a replica.</exception>
    /// <exception cref="FormatVersionException">The replica has another format version.</exception>
    /// <exception cref="StorageIoException">Something in it cannot be opened at all.</exception>
    public static StoppedReplica Open(IFileSystem disk, string directory)
    {
        var files = new ReadOnlyDisk(disk);
        var layout = new StoreLayout(directory);
        if (files.FileExists(directory))
            throw new NotAReplicaException(directory, "it is a file.");
        if (!files.DirectoryExists(directory))
            throw new NotAReplicaException(directory, "it does not exist.");
        var states = layout.States(files);
        if (states.Count == 0 && !files.FileExists(layout.Control) && !files.FileExists(layout.Quarantined))
            throw new NotAReplicaException(directory, files.DirectoryExists(Path.Combine(directory, "shards"))
                ? "it is the data directory of a node; the replicas are the directories in 'shards' in it."
                : "it has neither a control file nor a state.");
        var found = new StoppedReplica(files, layout, states);
        try
        {
            found.OpenState();
            return found;
        }
        catch
        {
            found.Dispose();
            throw;
        }
    }

    /// <summary>The journal after another checkpoint than the newest one.</summary>
    public JournalScan ScanJournalAfter(in CheckpointPosition covered) => JournalScan.Read(Files, StoreLayout.Journal(State!), covered, Identity.ReplicaId);

    /// <summary>Reads the first bytes of a file. False if it is shorter, or the disk cannot read them.</summary>
    public static bool TryReadFront(IStorageFile file, Span<byte> front)
    {
        try
        {
            return file.Read(front, 0) == front.Length;
        }
        catch (StorageIoException)
        {
            return false;
        }
    }

    /// <inheritdoc/>
    public void Dispose() => _data?.Dispose();

    private void OpenState()
    {
        if (State is null)
            return;
        var path = StoreLayout.Data(State);
        if (Files.FileExists(path))
            OpenData(path);
        else
            DataFault = new CorruptStoreException($"'{path}' is missing");
        Journal = ScanJournalAfter(Newest?.CheckpointPosition ?? default);
    }

    private void OpenData(string path)
    {
        var data = _data = Files.Open(path, new StorageFileOptions(StorageFileMode.ReadOnly));
        for (var number = 0; number < Metas.Length; number++)
            Metas[number] = MetaPages.TryRead(data, number) is { } meta && meta.PageNumber == number ? meta : null;
        try
        {
            var newest = MetaPages.Read(data).Newest;
            Space = new PageSpace(data, new PageStoreOptions().MapBytes);
            Free = FreeMap.Load(Space, newest);
            if (Control is not null && newest.Identity != BinaryPrimitives.ReadUInt128LittleEndian(StoreDirectory.IdentityOf(Control)))
                DataFault = new CorruptStoreException($"'{path}' belongs to another replica");
        }
        catch (CorruptStoreException fault)
        {
            DataFault = fault;
            Space ??= new PageSpace(data, new PageStoreOptions().MapBytes);
        }
    }
}
