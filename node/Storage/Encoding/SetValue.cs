using System.Buffers.Binary;

namespace KvCluster.Storage.Encoding;

/// <summary>
/// The value of an entry of the tree <c>sets</c> (FORMAT.md, "Sets"): the header of a set, and its members in order if it is a small one. The members of a
/// large set are the keys of the entry's tree. Pure; any thread.
/// </summary>
internal readonly ref struct SetValue
{
    /// <summary>Bytes of the header: the etag of the last change, and the number of members.</summary>
    public const int HeaderBytes = 24;

    /// <summary>The most bytes of a value: as many as a leaf holds. A larger set has a tree.</summary>
    public const int BytesMax = 2_048;

    /// <summary>Bytes that a member takes in a small set besides its own.</summary>
    public const int MemberOverhead = sizeof(ushort);

    private readonly ReadOnlySpan<byte> _ends;
    private readonly ReadOnlySpan<byte> _members;

    /// <summary>Reads a stored value. Its members are not looked at.</summary>
    /// <exception cref="CorruptStoreException">The value has no header, not the space for its members, or more than a small set may have.</exception>
    public SetValue(ReadOnlySpan<byte> stored)
    {
        if (stored.Length is < HeaderBytes or > BytesMax)
            throw Malformed();
        Etag = new Etag(BinaryPrimitives.ReadUInt64LittleEndian(stored[8..]), BinaryPrimitives.ReadUInt64LittleEndian(stored));
        Count = BinaryPrimitives.ReadUInt64LittleEndian(stored[16..]);
        if (stored.Length == HeaderBytes)
            return;
        var rest = stored[HeaderBytes..];
        if (Count == 0 || Count > (ulong)(rest.Length / MemberOverhead))
            throw Malformed();
        SmallCount = (int)Count;
        _ends = rest[..(SmallCount * MemberOverhead)];
        _members = rest[_ends.Length..];
    }

    /// <summary>The last change of the set.</summary>
    public Etag Etag { get; }

    /// <summary>How many members it has.</summary>
    public ulong Count { get; }

    /// <summary>The members in the value: all, or 0 in a large set.</summary>
    public int SmallCount { get; }

    /// <summary>Bytes of the value.</summary>
    public int Bytes => HeaderBytes + _ends.Length + _members.Length;

    /// <summary>A member of a small set, in place.</summary>
    /// <exception cref="CorruptStoreException">The members do not have the lengths that the value says.</exception>
    public ReadOnlySpan<byte> this[int index]
    {
        get
        {
            int start = index == 0 ? 0 : EndOf(index - 1), end = EndOf(index);
            return start < end && end <= _members.Length ? _members[start..end] : throw Malformed();
        }
    }

    /// <summary>Index of the first member of a small set that is not less than the given one.</summary>
    public int LowerBound(ReadOnlySpan<byte> member, out bool found)
    {
        var (low, high) = (0, SmallCount);
        while (low < high)
        {
            var middle = (low + high) >> 1;
            var order = this[middle].SequenceCompareTo(member);
            found = order == 0;
            if (found)
                return middle;
            (low, high) = order < 0 ? (middle + 1, high) : (low, middle);
        }
        found = false;
        return low;
    }

    /// <summary>
    /// Verifies that the value has the members unless they are in a tree, that none is empty, that they are in order, and that the value ends with the last
    /// one.
    /// </summary>
    /// <param name="hasTree">Whether the entry has a tree.</param>
    /// <exception cref="CorruptStoreException">One of these does not hold.</exception>
    public void Check(bool hasTree)
    {
        if (Count == 0 || hasTree != (SmallCount == 0) || (SmallCount > 0 && EndOf(SmallCount - 1) != _members.Length))
            throw Malformed();
        for (var index = 0; index < SmallCount; index++)
        {
            if (this[index].IsEmpty || (index > 0 && this[index - 1].SequenceCompareTo(this[index]) >= 0))
                throw new CorruptStoreException($"Member {index} of a set is out of order.");
        }
    }

    /// <summary>Writes the header of a set.</summary>
    public static void WriteHeader(Span<byte> destination, Etag etag, ulong count)
    {
        BinaryPrimitives.WriteUInt64LittleEndian(destination, etag.Change);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[8..], etag.Epoch);
        BinaryPrimitives.WriteUInt64LittleEndian(destination[16..], count);
    }

    /// <summary>Writes the value of a small set to which one member is added, and returns its length.</summary>
    public int WriteWith(Span<byte> destination, int at, ReadOnlySpan<byte> member, Etag etag)
    {
        var writer = new SmallSetWriter(destination, SmallCount + 1, etag);
        for (var index = 0; index <= SmallCount; index++)
        {
            if (index == at)
                writer.Add(member);
            if (index < SmallCount)
                writer.Add(this[index]);
        }
        return writer.Length;
    }

    /// <summary>Writes the value of a small set from which one member is removed, and returns its length.</summary>
    public int WriteWithout(Span<byte> destination, int at, Etag etag)
    {
        var writer = new SmallSetWriter(destination, SmallCount - 1, etag);
        for (var index = 0; index < SmallCount; index++)
        {
            if (index != at)
                writer.Add(this[index]);
        }
        return writer.Length;
    }

    /// <summary>Writes the value of a small set without the members before one, of which there are fewer than all, and returns its length.</summary>
    public int WriteFrom(Span<byte> destination, int first, Etag etag)
    {
        var writer = new SmallSetWriter(destination, SmallCount - first, etag);
        for (var index = first; index < SmallCount; index++)
            writer.Add(this[index]);
        return writer.Length;
    }

    private static CorruptStoreException Malformed() => new("A stored set does not have the members that it says.");

    private int EndOf(int index) => BinaryPrimitives.ReadUInt16LittleEndian(_ends[(index * MemberOverhead)..]);
}

/// <summary>Writes the value of a small set, whose members are added in order.</summary>
internal ref struct SmallSetWriter
{
    private readonly Span<byte> _ends;
    private readonly Span<byte> _members;
    private int _count;
    private int _bytes;

    /// <summary>Begins with the header.</summary>
    /// <param name="destination">Has the space for the whole value.</param>
    /// <param name="count">How many members follow.</param>
    /// <param name="etag">The last change of the set.</param>
    public SmallSetWriter(Span<byte> destination, int count, Etag etag)
    {
        SetValue.WriteHeader(destination, etag, (ulong)count);
        _ends = destination[SetValue.HeaderBytes..][..(count * SetValue.MemberOverhead)];
        _members = destination[(SetValue.HeaderBytes + _ends.Length)..];
    }

    /// <summary>The length of the value so far.</summary>
    public readonly int Length => SetValue.HeaderBytes + _ends.Length + _bytes;

    /// <summary>Adds a member.</summary>
    public void Add(scoped ReadOnlySpan<byte> member)
    {
        member.CopyTo(_members[_bytes..]);
        _bytes += member.Length;
        BinaryPrimitives.WriteUInt16LittleEndian(_ends[(_count++ * SetValue.MemberOverhead)..], (ushort)_bytes);
    }
}
