using System.Runtime.InteropServices;

namespace KvCluster.Disk;

/// <summary>
/// A file's content on the <see cref="SimulatedDisk"/>, with the data that each write since the last sync replaced, so that a power loss can undo
/// writes.
/// </summary>
internal sealed unsafe partial class SimulatedNode
{
    /// <summary>The unit in which a disk writes, in bytes.</summary>
    public const int SectorBytes = 512;

    /// <summary>The unit of holes, in bytes.</summary>
    private const int HoleBytes = 4096;
    private const int PrivateAnonymous = 2 | 0x20 | 0x4000; // MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
    private readonly List<Pending> _unsynced = [];
    private readonly List<(nint Address, long Offset, long Length)> _maps = [];
    private readonly SortedSet<long> _badSectors = [];
    private readonly HashSet<long> _holes = [];
    private byte[] _bytes = [];
    private int _length;

    public ReadOnlySpan<byte> Content => _bytes.AsSpan(0, _length);

    /// <summary>Bytes that it takes from the disk.</summary>
    public long AllocatedBytes => _length - (_holes.Count * (long)HoleBytes);

    /// <summary>Bytes that a write takes from the disk: beyond the end, and in holes.</summary>
    public long BytesToAllocate(long offset, int length) =>
        Math.Max(0, offset + length - _length) + (_holes.Count == 0 || length == 0 ? 0 : BlocksOf(offset, length).Count(_holes.Contains) * (long)HoleBytes);

    /// <summary>Zeroes a range of whole blocks, as an unsynced write does. Returns the bytes that it gives back.</summary>
    public long MakeHole(long offset, long length)
    {
        if (offset % HoleBytes != 0 || length % HoleBytes != 0 || offset < 0 || offset + length > _length)
            throw new ArgumentOutOfRangeException(nameof(offset), $"{length} bytes at {offset} of a file of {_length} cannot become a hole.");
        Write(new byte[length], offset, durable: false);
        return BlocksOf(offset, length).Count(_holes.Add) * (long)HoleBytes;
    }

    /// <summary>Finds the first part of a range that takes no space.</summary>
    public bool TryFindHole(long offset, long end, out long holeOffset, out long holeEnd)
    {
        holeOffset = offset;
        while (holeOffset < end && !_holes.Contains(holeOffset / HoleBytes))
            holeOffset += HoleBytes;
        holeEnd = holeOffset;
        while (holeEnd < end && _holes.Contains(holeEnd / HoleBytes))
            holeEnd += HoleBytes;
        return holeOffset < end;
    }

    public void Write(ReadOnlySpan<byte> source, long offset, bool durable)
    {
        var end = checked((int)offset + source.Length);
        _badSectors.RemoveWhere(sector => sector * SectorBytes >= offset && (sector + 1) * SectorBytes <= end);
        // A durable write need not be undone, unless an earlier one in the list may be.
        if (!durable || _unsynced.Count > 0)
        {
            var replaced = Content[Math.Min((int)offset, _length)..Math.Min(end, _length)].ToArray();
            _unsynced.Add(new Pending((int)offset, replaced, source.ToArray(), _length, Math.Max(_length, end)) { IsDurable = durable });
        }
        SetLength(Math.Max(_length, end));
        Put(source, (int)offset);
        if (_holes.Count > 0)
            _holes.ExceptWith(BlocksOf(offset, source.Length));
    }

    public void Resize(long length)
    {
        var cut = length < _length ? Content[(int)length..].ToArray() : [];
        _unsynced.Add(new Pending((int)Math.Min(length, _length), cut, [], _length, (int)length));
        SetLength((int)length);
    }

    public void Sync()
    {
        if (!_unsynced.Exists(pending => pending.IsLost))
        {
            _unsynced.Clear();
            return;
        }
        foreach (var pending in _unsynced)
            pending.IsDurable |= !pending.IsLost;
    }

    /// <summary>Unsynced data is taken for written, and will be lost with the power.</summary>
    public void LoseUnsynced()
    {
        foreach (var pending in _unsynced)
            pending.IsLost |= !pending.IsDurable;
    }

    public void MakeUnreadable(long offset, long bytes)
    {
        for (var sector = offset / SectorBytes; sector * SectorBytes < offset + bytes; sector++)
            _badSectors.Add(sector);
    }

    public bool IsUnreadable(long offset, long bytes) =>
        bytes > 0 && _badSectors.Count > 0 && _badSectors.GetViewBetween(offset / SectorBytes, (offset + bytes - 1) / SectorBytes).Count > 0;

    public void FlipBit(long offset) => Put([(byte)(_bytes[offset] ^ 1)], (int)offset);

    public void Settle(UnsyncedWrites unsynced, Random random)
    {
        if (unsynced != UnsyncedWrites.Kept || _unsynced.Exists(pending => pending.IsLost))
        {
            for (var index = _unsynced.Count - 1; index >= 0; index--)
            {
                SetLength(_unsynced[index].LengthBefore);
                Put(_unsynced[index].Replaced, _unsynced[index].Offset);
            }
            foreach (var pending in _unsynced)
            {
                if (pending.IsDurable || (unsynced == UnsyncedWrites.Kept && !pending.IsLost))
                    Redo(pending, random, tear: false);
                else if (!pending.IsLost && unsynced is UnsyncedWrites.Reordered or UnsyncedWrites.Torn && random.Next(2) == 0)
                    Redo(pending, random, tear: unsynced == UnsyncedWrites.Torn);
            }
        }
        _unsynced.Clear();
        // Which blocks have space after a power loss is not simulated. All have.
        _holes.Clear();
    }

    /// <summary>Memory at a fixed address that always shows a range of the content.</summary>
    public byte* Map(long offset, long bytes)
    {
        const int ReadWrite = 3;
        var address = MapMemory(null, (nuint)bytes, ReadWrite, PrivateAnonymous, -1, 0);
        if (address == (byte*)-1)
            throw new OutOfMemoryException($"mmap of {bytes} bytes failed with errno {Marshal.GetLastPInvokeError()}.");
        var map = ((nint)address, offset, bytes);
        _maps.Add(map);
        if (PartOf(map, 0, _length, out var from) is { IsEmpty: false } part)
            Content.Slice(from, part.Length).CopyTo(part);
        return address;
    }

    public void Unmap(byte* address)
    {
        var index = _maps.FindIndex(map => map.Address == (nint)address);
        _ = UnmapMemory(address, (nuint)_maps[index].Length);
        _maps.RemoveAt(index);
    }

    [LibraryImport("libc", EntryPoint = "mmap", SetLastError = true)]
    private static partial byte* MapMemory(byte* address, nuint length, int protection, int flags, int file, nint offset);

    [LibraryImport("libc", EntryPoint = "munmap", SetLastError = true)]
    private static partial int UnmapMemory(byte* address, nuint length);

    private void Redo(Pending pending, Random random, bool tear)
    {
        if (pending.Written.Length == 0)
        {
            SetLength(pending.LengthAfter);
            return;
        }
        SetLength(Math.Max(_length, pending.Offset + pending.Written.Length));
        for (var at = 0; at < pending.Written.Length; at += SectorBytes)
        {
            if (!tear || random.Next(2) == 0)
                Put(pending.Written.AsSpan(at, Math.Min(SectorBytes, pending.Written.Length - at)), pending.Offset + at);
        }
    }

    private static IEnumerable<long> BlocksOf(long offset, long length)
    {
        for (var block = offset / HoleBytes; block * HoleBytes < offset + length; block++)
            yield return block;
    }

    private void SetLength(int length)
    {
        _holes.RemoveWhere(block => (block + 1) * HoleBytes > length);
        if (length > _bytes.Length)
            Array.Resize(ref _bytes, Math.Max(length, Math.Min(2 * _bytes.Length, _bytes.Length + (_bytes.Length / 4) + (8 << 20))));
        if (length < _length)
            Clear(length, _length - length);
        _length = length;
    }

    private void Clear(int offset, int count)
    {
        _bytes.AsSpan(offset, count).Clear();
        foreach (var map in _maps)
            PartOf(map, offset, count, out _).Clear();
    }

    private void Put(ReadOnlySpan<byte> source, int offset)
    {
        source.CopyTo(_bytes.AsSpan(offset));
        foreach (var map in _maps)
        {
            if (PartOf(map, offset, source.Length, out var from) is { IsEmpty: false } part)
                source.Slice(from, part.Length).CopyTo(part);
        }
    }

    /// <summary>The memory in which a map has a part of the content, and where in that part it begins.</summary>
    private static Span<byte> PartOf((nint Address, long Offset, long Length) map, int offset, int count, out int from)
    {
        var start = Math.Max(map.Offset, offset);
        var end = Math.Min(map.Offset + map.Length, (long)offset + count);
        from = (int)(start - offset);
        return start < end ? new Span<byte>((byte*)map.Address + (start - map.Offset), (int)(end - start)) : default;
    }

    private sealed record Pending(int Offset, byte[] Replaced, byte[] Written, int LengthBefore, int LengthAfter)
    {
        public bool IsDurable { get; set; }

        /// <summary>Whether the sync that should have made it durable failed.</summary>
        public bool IsLost { get; set; }
    }
}
