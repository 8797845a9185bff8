using System.Buffers.Binary;
using System.Numerics;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Trees;

/// <summary>
/// Members in order, copied out of a snapshot, and how many of them other sets have. Small sets are read through and each of their members is looked up in a hash table,
/// because most are not in the list, and that is seen at the first look. In large sets the list's members are searched. One thread at a time.
/// </summary>
internal sealed class MemberList
{
    /// <summary>Places of the hash table for each member: so many that most looks for what is not there end at once.</summary>
    private const int PlacesPerMember = 16;

    private readonly ByteBuffer _bytes = new(0);
    private readonly List<int> _ends = [];

    /// <summary>The hash table with open addresses: the hash of a member, and in the low half its index and one; 0 is a free place. Made when it is first needed.</summary>
    private ulong[] _places = [];

    /// <summary>Number of members.</summary>
    public int Count => _ends.Count;

    /// <summary>Bytes of all members.</summary>
    public int Bytes => _bytes.Count;

    /// <summary>A member.</summary>
    public ReadOnlySpan<byte> this[int index] => _bytes.Written[(index == 0 ? 0 : _ends[index - 1]).._ends[index]];

    /// <summary>Adds a member that is greater than all so far. None may be added once others were counted.</summary>
    public void Add(ReadOnlySpan<byte> member)
    {
        Invariant.Check(_places.Length == 0, $"A member is added to a list that was compared with a set.");
        _bytes.Append(member);
        _ends.Add(_bytes.Count);
    }

    /// <summary>How many members a set has in common with this list.</summary>
    /// <exception cref="CorruptStoreException">A page of the set is not what was written.</exception>
    public ulong CountIn(in StoredSet set)
    {
        if (Count == 0)
            return 0;
        if (_places.Length == 0)
            FillPlaces();
        if (!set.IsPromoted)
            return CountIn(set.Small);
        using var cursor = set.Members();
        return set.Count > (ulong)Count ? CountBySearches(cursor) : CountBySteps(cursor);
    }

    private ulong CountIn(in SetValue small)
    {
        var common = 0ul;
        for (var at = 0; at < small.SmallCount; at++)
            common += Contains(small[at]) ? 1u : 0;
        return common;
    }

    private ulong CountBySteps(SetCursor cursor)
    {
        var common = 0ul;
        while (cursor.MoveNext())
            common += Contains(cursor.Member) ? 1u : 0;
        return common;
    }

    private ulong CountBySearches(SetCursor cursor)
    {
        var common = 0ul;
        for (var index = 0; index < Count && cursor.Reach(this[index], out var isEqual); index++)
            common += isEqual ? 1u : 0;
        return common;
    }

    private void FillPlaces()
    {
        _places = new ulong[BitOperations.RoundUpToPowerOf2((uint)Count * PlacesPerMember)];
        for (var index = 0; index < Count; index++)
        {
            var hash = HashOf(this[index]);
            var place = PlaceOf(hash);
            while (_places[place] != 0)
                place = (place + 1) & (_places.Length - 1);
            _places[place] = ((ulong)hash << 32) | ((uint)index + 1);
        }
    }

    private bool Contains(ReadOnlySpan<byte> member)
    {
        var hash = HashOf(member);
        for (var place = PlaceOf(hash); _places[place] is not 0 and var entry; place = (place + 1) & (_places.Length - 1))
        {
            if (entry >> 32 == hash && this[(int)(uint)entry - 1].SequenceEqual(member))
                return true;
        }
        return false;
    }

    private int PlaceOf(uint hash) => (int)hash & (_places.Length - 1);

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
        // The last eight bytes may have some in common with those before them.
        var last = BinaryPrimitives.ReadUInt64LittleEndian(member[^sizeof(ulong)..]);
        for (; member.Length > sizeof(ulong); member = member[sizeof(ulong)..])
            hash = BitOperations.Crc32C(hash, BinaryPrimitives.ReadUInt64LittleEndian(member));
        return BitOperations.Crc32C(hash, last);
    }
}
