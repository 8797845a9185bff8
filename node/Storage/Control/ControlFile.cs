using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Files;

namespace KvCluster.Storage.Control;

/// <summary>
/// The control file: two checksummed slots written in turn, so that a torn write leaves the other one intact (FORMAT.md, "Control file"). State that
/// others rely on is in both slots before it is reported, so that damage to one slot later revokes no promise. Opened by recovery, written by the
/// journal's lanes, one at a time. A failed write stops the engine, unless the disk is full: then the newest state is in the other slot, and the same
/// write can be repeated.
/// </summary>
internal sealed class ControlFile : IDisposable
{
    /// <summary>"KVC1" as little-endian bytes.</summary>
    public const uint Magic = 0x3143_564B;

    /// <summary>Format version of a slot.</summary>
    public const uint Version = 1;

    /// <summary>Each slot has a block of its own, so that no write touches both.</summary>
    public const int SlotBytes = AlignedBuffer.Alignment;

    private const int ChecksumOffset = 128;
    private readonly IStorageFile _file;
    private readonly AlignedBuffer _block = new(SlotBytes);
    private ulong _sequence;

    /// <summary>Whether the slot without the newest state also holds every promise that binds this replica.</summary>
    private bool _isInBoth;

    /// <summary>Whether the slot with the newest state is known to be on disk.</summary>
    private bool _newestIsSynced;

    private ControlFile(IStorageFile file, ControlState state, ulong sequence, int slotsValid, bool isInBoth, bool newestIsSynced)
    {
        _file = file;
        _sequence = sequence;
        State = state;
        SlotsValid = slotsValid;
        _isInBoth = isInBoth;
        _newestIsSynced = newestIsSynced;
    }

    /// <summary>The newest state that was written.</summary>
    public ControlState State { get; private set; }

    /// <summary>How many slots were intact when the file was opened.</summary>
    public int SlotsValid { get; }

    /// <summary>Creates the file with the state in both slots, synced; the caller syncs the directory.</summary>
    public static ControlFile Create(IFileSystem files, string path, ControlState state)
    {
        var file = files.Open(path, new StorageFileOptions(StorageFileMode.CreateNew, Direct: true, DataSync: true));
        var control = new ControlFile(file, state, 0, slotsValid: 2, isInBoth: false, newestIsSynced: true);
        try
        {
            file.Resize(2 * SlotBytes);
            file.Sync();
            control.Write(state);
            return control;
        }
        catch
        {
            control.Dispose();
            throw;
        }
    }

    /// <summary>The content of the control file in a replica's directory; null when that is missing or damaged. Any thread; changes nothing.</summary>
    public static ControlState? StateOf(IFileSystem files, string directory)
    {
        var path = new StoreLayout(directory).Control;
        if (!files.FileExists(path))
            return null;
        using var control = TryOpen(files, path);
        return control?.State;
    }

    /// <summary>Opens the file; null when neither slot is intact.</summary>
    /// <exception cref="FormatVersionException">An intact slot has another version.</exception>
    public static ControlFile? TryOpen(IFileSystem files, string path)
    {
        ControlState? newest = null, older = null;
        ulong newestSequence = 0;
        var valid = 0;
        foreach (var slot in ReadSlots(files, path))
        {
            if (slot.State is not { } state)
                continue;
            valid++;
            if (newest is null || slot.Sequence > newestSequence)
                (older, newest, newestSequence) = (newest, state, slot.Sequence);
            else
                older = state;
        }
        if (newest is null)
            return null;
        var file = files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting, Direct: true, DataSync: true));
        // Through the page cache, what was read may be a write whose sync failed in an earlier process, so it is unknown which slots the disk has.
        return new ControlFile(
            file, newest, newestSequence, valid, isInBoth: file.IsDirect && older is not null && !Binds(older, newest), newestIsSynced: file.IsDirect);
    }

    /// <summary>Reads both slots. One that the disk cannot read counts as damaged. Any thread; changes nothing.</summary>
    /// <exception cref="FormatVersionException">An intact slot has another version.</exception>
    public static ControlSlot[] ReadSlots(IFileSystem files, string path)
    {
        using var reader = files.Open(path, new StorageFileOptions(StorageFileMode.OpenExisting));
        var slots = new ControlSlot[2];
        var bytes = new byte[SlotBytes];
        for (var index = 0; index < slots.Length; index++)
            slots[index] = ReadSlot(reader, bytes, index, path);
        return slots;
    }

    /// <summary>One slot; without a state if it is damaged or cannot be read.</summary>
    private static ControlSlot ReadSlot(IStorageFile reader, byte[] bytes, int index, string path)
    {
        try
        {
            return reader.Read(bytes, index * SlotBytes) == SlotBytes && TryDecode(bytes, path, out var state, out var sequence)
                ? new ControlSlot(state, sequence)
                : default;
        }
        catch (StorageIoException)
        {
            return default;
        }
    }

    /// <summary>
    /// Writes the state into the slot that does not hold the newest one. If the state changes what binds this replica, it is also written into the other
    /// slot. Durable when this returns.
    /// </summary>
    /// <exception cref="StorageIoException">
    /// An I/O error, or the disk is full. After a full disk the call can be repeated; the newest intact state is not overwritten before that.
    /// </exception>
    public void Write(ControlState state)
    {
        var holdsInBoth = _isInBoth && !Binds(State, state);
        // Set again on success: a write that fails may have damaged its slot.
        _isInBoth = false;
        SyncNewest();
        WriteSlot(state);
        if (!holdsInBoth)
            WriteSlot(state);
        _isInBoth = true;
    }

    /// <summary>
    /// Makes both slots hold what binds this replica, if one of them is damaged, a write of both was interrupted, or what was read may not be on disk.
    /// Called before anything in it is reported.
    /// </summary>
    public void Settle()
    {
        if (!_isInBoth)
            Write(State);
    }

    /// <inheritdoc/>
    public void Dispose()
    {
        _file.Dispose();
        _block.Dispose();
    }

    /// <summary>
    /// Whether others may rely on something in the later state that is not in the earlier one. The committed and acknowledged etags only help recovery,
    /// and what was seen of the shard's record is seen again. But an acknowledged etag is lowered before a truncation, and the mark of a loss must not be
    /// lost.
    /// </summary>
    private static bool Binds(ControlState earlier, ControlState later) =>
        later.Acknowledged < earlier.Acknowledged || later.Acknowledged.Change == ulong.MaxValue
        || earlier with
        {
            Committed = later.Committed,
            Acknowledged = later.Acknowledged,
            Generation = later.Generation,
            CoordinatorRevision = later.CoordinatorRevision,
        } != later;

    /// <summary>
    /// Rewrites the newest slot in place before the other one is overwritten. Its last write may have failed in the previous process. In that case it is
    /// in the page cache but torn on disk, where the other slot is the only intact one.
    /// </summary>
    private void SyncNewest()
    {
        if (_newestIsSynced)
            return;
        WriteSlot(State, _sequence);
        _newestIsSynced = true;
    }

    private void WriteSlot(ControlState state)
    {
        WriteSlot(state, _sequence + 1);
        (_sequence, State) = (_sequence + 1, state);
    }

    private void WriteSlot(ControlState state, ulong sequence)
    {
        Encode(_block.Span, state, sequence);
        _file.Write(_block.Span, (long)(sequence % 2) * SlotBytes);
    }

    /// <summary>Writes a slot.</summary>
    internal static void Encode(Span<byte> slot, ControlState state, ulong sequence)
    {
        slot[..SlotBytes].Clear();
        BinaryPrimitives.WriteUInt32LittleEndian(slot, Magic);
        BinaryPrimitives.WriteUInt32LittleEndian(slot[4..], Version);
        BinaryPrimitives.WriteUInt64LittleEndian(slot[8..], sequence);
        BinaryPrimitives.WriteUInt64LittleEndian(slot[16..], state.ReplicaId.Value);
        BinaryPrimitives.WriteUInt32LittleEndian(slot[24..], state.Shard.Value);
        slot[28] = state.Removed ? (byte)1 : (byte)0;
        BinaryPrimitives.WriteUInt64LittleEndian(slot[32..], state.PromisedEpoch);
        BinaryPrimitives.WriteUInt64LittleEndian(slot[40..], state.PromisedLeader.Value);
        BinaryPrimitives.WriteUInt64LittleEndian(slot[48..], state.PromisedIncarnation);
        EtagBytes.Write(slot[56..], state.Committed);
        EtagBytes.Write(slot[72..], state.Acknowledged);
        BinaryPrimitives.WriteUInt64LittleEndian(slot[88..], state.Generation);
        BinaryPrimitives.WriteInt64LittleEndian(slot[96..], state.CoordinatorRevision);
        BinaryPrimitives.WriteInt64LittleEndian(slot[104..], state.LeaseLongestMs);
        BinaryPrimitives.WriteUInt64LittleEndian(slot[112..], state.ClusterHash);
        BinaryPrimitives.WriteUInt64LittleEndian(slot[120..], state.Recovery);
        BinaryPrimitives.WriteUInt32LittleEndian(slot[ChecksumOffset..], Crc32C.Of(slot[..ChecksumOffset]));
    }

    /// <summary>Reads a slot; false when it is damaged.</summary>
    internal static bool TryDecode(ReadOnlySpan<byte> slot, string path, out ControlState state, out ulong sequence)
    {
        state = null!;
        sequence = 0;
        if (BinaryPrimitives.ReadUInt32LittleEndian(slot) != Magic
            || BinaryPrimitives.ReadUInt32LittleEndian(slot[ChecksumOffset..]) != Crc32C.Of(slot[..ChecksumOffset]))
            return false;
        var version = BinaryPrimitives.ReadUInt32LittleEndian(slot[4..]);
        if (version != Version)
            throw new FormatVersionException(path, version, Version);
        sequence = BinaryPrimitives.ReadUInt64LittleEndian(slot[8..]);
        state = new ControlState
        {
            ReplicaId = new(BinaryPrimitives.ReadUInt64LittleEndian(slot[16..])),
            Shard = new(BinaryPrimitives.ReadUInt32LittleEndian(slot[24..])),
            Removed = slot[28] != 0,
            PromisedEpoch = BinaryPrimitives.ReadUInt64LittleEndian(slot[32..]),
            PromisedLeader = new(BinaryPrimitives.ReadUInt64LittleEndian(slot[40..])),
            PromisedIncarnation = BinaryPrimitives.ReadUInt64LittleEndian(slot[48..]),
            Committed = EtagBytes.Read(slot[56..]),
            Acknowledged = EtagBytes.Read(slot[72..]),
            Generation = BinaryPrimitives.ReadUInt64LittleEndian(slot[88..]),
            CoordinatorRevision = BinaryPrimitives.ReadInt64LittleEndian(slot[96..]),
            LeaseLongestMs = BinaryPrimitives.ReadInt64LittleEndian(slot[104..]),
            ClusterHash = BinaryPrimitives.ReadUInt64LittleEndian(slot[112..]),
            Recovery = BinaryPrimitives.ReadUInt64LittleEndian(slot[120..]),
        };
        return true;
    }
}

/// <summary>What a slot of the control file holds.</summary>
/// <param name="State">The state; null if the slot is damaged.</param>
/// <param name="Sequence">One more than the sequence of the state before it.</param>
internal readonly record struct ControlSlot(ControlState? State, ulong Sequence);
