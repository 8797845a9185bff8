using System.Buffers;
using System.Buffers.Binary;
using System.Numerics;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Members in order, copied out of a snapshot, and how many of them other sets have. Small sets are read through and each of their members is looked up in a
/// hash table, because most are not in the list, and that is seen at the first look. In large sets the list's members are searched. Whatever takes long is
/// done in steps of some hundred microseconds, and memory is asked for before it is taken. One thread at a time.
/// </summary>
/// <param name="tryTake">Whether the list may take so many bytes more. They are returned by whoever gave them, after <see cref="Dispose"/>.</param>
internal sealed class MemberList(Func<long, bool> tryTake) : IDisposable
{
    /// <summary>Members that one step looks at.</summary>
    private const int StepMembers = 4_096;

    /// <summary>Bytes of the hash table and its filter that one step clears.</summary>
    private const int StepBytes = 1 << 20;

    /// <summary>A position is the number of a chunk, and in the low bits the offset in it.</summary>
    private const int ChunkBits = 18;
    private const int ChunkBytesMax = 1 << ChunkBits;
    private const int ChunkBytesFirst = 4 << 10;
    private const int ChunksMax = (1 << (32 - ChunkBits)) - 1;

    /// <summary>Bits of the filter for each member: so many that most looks for what is not there end at it, in one line of the processor's cache.</summary>
    private const int FilterBitsPerMember = 16;

    /// <summary>Places of the hash table for each member.</summary>
    private const int PlacesPerMember = 2;

    // Members with their lengths in front. No member is in two chunks.
    private readonly List<byte[]> _chunks = [];
    private readonly List<int> _chunkCounts = [];

    /// <summary>A bit for the hash of each member.</summary>
    private ulong[] _filter = [];

    /// <summary>The hash table with open addresses: the position of a member and one; 0 is a free place.</summary>
    private uint[] _places = [];
    private int _filterWords;
    private int _placeCount;
    private int _cleared;
    private Position _filled;
    private bool _isPrepared;

    // The set that is being counted.
    private SetCursor? _cursor;
    private bool _searches;
    private Position _searched;
    private ulong _common;

    /// <summary>Number of members.</summary>
    public int Count { get; private set; }

    /// <summary>Adds a member that is greater than all so far. None may be added once others were counted. False if it may not take the memory.</summary>
    public bool TryAdd(ReadOnlySpan<byte> member)
    {
        Invariant.Check(_placeCount == 0, $"A member is added to a list that was compared with a set.");
        var bytes = sizeof(ushort) + member.Length;
        if ((_chunks.Count == 0 || _chunkCounts[^1] + bytes > Math.Min(_chunks[^1].Length, ChunkBytesMax)) && !TryAddChunk())
            return false;
        var place = _chunks[^1].AsSpan(_chunkCounts[^1], bytes);
        BinaryPrimitives.WriteUInt16LittleEndian(place, (ushort)member.Length);
        member.CopyTo(place[sizeof(ushort)..]);
        _chunkCounts[^1] += bytes;
        Count++;
        return true;
    }

    /// <summary>Takes what is needed to count, once all members are added. False if it may not take the memory.</summary>
    public bool TryBeginCounts()
    {
        _placeCount = (int)BitOperations.RoundUpToPowerOf2((uint)Math.Max(Count, 1) * PlacesPerMember);
        _filterWords = Math.Max(1, _placeCount / PlacesPerMember * FilterBitsPerMember / (8 * sizeof(ulong)));
        if (!tryTake(((long)_placeCount * sizeof(uint)) + ((long)_filterWords * sizeof(ulong))))
            return false;
        _places = ArrayPool<uint>.Shared.Rent(_placeCount);
        _filter = ArrayPool<ulong>.Shared.Rent(_filterWords);
        return true;
    }

    /// <summary>One step of what is done before the first set is counted, after <see cref="TryBeginCounts"/>. True when it is done.</summary>
    public bool Prepare()
    {
        if (_isPrepared)
            return true;
        if (_cleared < _placeCount)
        {
            var places = Math.Min(StepBytes / sizeof(uint), _placeCount - _cleared);
            Array.Clear(_places, _cleared, places);
            // A part of the filter with each part of the places.
            var (first, end) = (FilterWordAt(_cleared), FilterWordAt(_cleared + places));
            Array.Clear(_filter, first, end - first);
            _cleared += places;
            return false;
        }
        for (var members = 0; members < StepMembers; members++)
        {
            if (!TryRead(ref _filled, out var at, out var member))
                return _isPrepared = true;
            var hash = HashOf(member);
            _filter[WordOf(hash)] |= BitOf(hash);
            var place = PlaceOf(hash);
            while (_places[place] != 0)
                place = (place + 1) & (_placeCount - 1);
            _places[place] = at.Value + 1;
        }
        return false;
    }

    /// <summary>Begins to count how many members a set has in common with this list. False if it is not done yet, and <see cref="Resume"/> goes on.</summary>
    /// <param name="set">The set, whose snapshot stays open until the count is done.</param>
    /// <param name="common">The number of members in common.</param>
    /// <exception cref="CorruptStoreException">A page of the set is not what was written.</exception>
    public bool CountIn(in StoredSet set, out ulong common)
    {
        Invariant.Check(_isPrepared && _cursor is null, $"A set was to be counted before the list was prepared, or during another count.");
        if (!set.IsPromoted)
        {
            common = CountIn(set.Small);
            return true;
        }
        (_cursor, _searches, _searched, _common) = (set.Members(), set.Count > (ulong)Count, default, 0);
        return Resume(out common);
    }

    /// <inheritdoc cref="CountIn(in StoredSet, out ulong)"/>
    public bool Resume(out ulong common)
    {
        for (var members = 0; members < StepMembers; members++)
        {
            if (_searches ? Search() : Step())
                continue;
            common = _common;
            _cursor!.Dispose();
            _cursor = null;
            return true;
        }
        common = 0;
        return false;
    }

    /// <summary>Returns all memory.</summary>
    public void Dispose()
    {
        _cursor?.Dispose();
        _chunks.ForEach(static chunk => ArrayPool<byte>.Shared.Return(chunk));
        _chunks.Clear();
        if (_places.Length > 0)
            ArrayPool<uint>.Shared.Return(_places);
        if (_filter.Length > 0)
            ArrayPool<ulong>.Shared.Return(_filter);
        (_places, _filter, _cursor) = ([], [], null);
    }

    private bool TryAddChunk()
    {
        // The first ones are small, because most intersections are.
        var bytes = Math.Min(ChunkBytesMax, ChunkBytesFirst << Math.Min(2 * _chunks.Count, ChunkBits));
        if (_chunks.Count == ChunksMax || !tryTake(bytes))
            return false;
        _chunks.Add(ArrayPool<byte>.Shared.Rent(bytes));
        _chunkCounts.Add(0);
        return true;
    }

    private ulong CountIn(in SetValue small)
    {
        var common = 0ul;
        for (var at = 0; at < small.SmallCount; at++)
            common += Contains(small[at]) ? 1u : 0;
        return common;
    }

    // Takes one member of the set. False at the end of the set.
    private bool Step()
    {
        if (!_cursor!.MoveNext())
            return false;
        _common += Contains(_cursor.Member) ? 1u : 0;
        return true;
    }

    // Takes one member of the list. False at the end of the list, or of the set.
    private bool Search()
    {
        if (!TryRead(ref _searched, out _, out var member) || !_cursor!.Reach(member, out var isEqual))
            return false;
        _common += isEqual ? 1u : 0;
        return true;
    }

    private bool Contains(ReadOnlySpan<byte> member)
    {
        var hash = HashOf(member);
        if ((_filter[WordOf(hash)] & BitOf(hash)) == 0)
            return false;
        for (var place = PlaceOf(hash); _places[place] is not 0 and var entry; place = (place + 1) & (_placeCount - 1))
        {
            if (MemberAt(new Position(entry - 1)).SequenceEqual(member))
                return true;
        }
        return false;
    }

    // The member at a position, or the first one of the next chunk if this one ends there, and where that is.
    private bool TryRead(ref Position next, out Position found, out ReadOnlySpan<byte> member)
    {
        member = default;
        found = next.Chunk < _chunks.Count && next.Offset == _chunkCounts[next.Chunk] ? Position.Of(next.Chunk + 1, 0) : next;
        if (found.Chunk >= _chunks.Count)
            return false;
        member = MemberAt(found);
        next = Position.Of(found.Chunk, found.Offset + sizeof(ushort) + member.Length);
        return true;
    }

    private ReadOnlySpan<byte> MemberAt(Position at)
    {
        var rest = _chunks[at.Chunk].AsSpan(at.Offset);
        return rest.Slice(sizeof(ushort), BinaryPrimitives.ReadUInt16LittleEndian(rest));
    }

    private int FilterWordAt(int place) => (int)((long)place * _filterWords / _placeCount);

    private int PlaceOf(uint hash) => (int)hash & (_placeCount - 1);

    // The bits of a hash that the place uses, and four more.
    private int WordOf(uint hash) => (int)(hash >> 6) & (_filterWords - 1);

    private static ulong BitOf(uint hash) => 1UL << (int)(hash & 63);

    // A checksum of all bytes, because members may differ anywhere.
    private static uint HashOf(ReadOnlySpan<byte> member)
    {
        var hash = (uint)member.Length;
        if (member.Length < sizeof(ulong))
        {
            var few = 0ul;
            foreach (var one in member)
                few = (few << 8) | one;
            return BitOperations.Crc32C(hash, few);
        }
        // The last eight bytes may overlap the word before them.
        var last = BinaryPrimitives.ReadUInt64LittleEndian(member[^sizeof(ulong)..]);
        for (; member.Length > sizeof(ulong); member = member[sizeof(ulong)..])
            hash = BitOperations.Crc32C(hash, BinaryPrimitives.ReadUInt64LittleEndian(member));
        return BitOperations.Crc32C(hash, last);
    }

    /// <summary>Where a member is.</summary>
    private readonly record struct Position(uint Value)
    {
        public int Chunk => (int)(Value >> ChunkBits);

        public int Offset => (int)(Value & (ChunkBytesMax - 1));

        // A chunk that is full to its last byte ends where the next one begins, which is as good.
        public static Position Of(int chunk, int offset) => new(((uint)chunk << ChunkBits) + (uint)offset);
    }
}
