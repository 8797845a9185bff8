namespace KvCluster.Storage.Encoding;

/// <summary>A growing array that is written at its end and reused, or memory of somebody else as far as it goes. Not thread-safe.</summary>
internal sealed class ByteBuffer
{
    private readonly int _capacity;
    private readonly int _front;
    private readonly int _back;

    /// <summary>What is written is between start and end, and may go on to the limit.</summary>
    private byte[] _bytes;
    private int _start;
    private int _end;
    private int _limit;

    /// <param name="capacity">Bytes for which it has room at first, and again after a <see cref="Clear"/> of much.</param>
    /// <param name="front">Bytes that stay free before what is written.</param>
    /// <param name="back">Bytes that stay free behind it.</param>
    public ByteBuffer(int capacity, int front = 0, int back = 0)
    {
        (_capacity, _front, _back) = (capacity, front, back);
        _bytes = GC.AllocateUninitializedArray<byte>(front + capacity + back);
        (_start, _end, _limit) = (front, front, front + capacity);
    }

    /// <summary>Bytes written.</summary>
    public int Count => _end - _start;

    /// <summary>Bytes for which there is room, with those written.</summary>
    public int Capacity => _limit - _start;

    /// <summary>What was written.</summary>
    public ReadOnlySpan<byte> Written => _bytes.AsSpan(_start, Count);

    /// <summary>What was written, with the free bytes before and behind it.</summary>
    public ArraySegment<byte> Whole => new(_bytes, _start - _front, _front + Count + _back);

    /// <summary>Discards what was written. Keeps the array unless it is larger than <paramref name="capacityMax"/>.</summary>
    public void Clear(int capacityMax)
    {
        if (Capacity > capacityMax)
            MoveTo(GC.AllocateUninitializedArray<byte>(_front + _capacity + _back));
        _end = _start;
    }

    /// <summary>Discards what was written and goes on in other memory, of which all that it leaves free is a part.</summary>
    public void MoveTo(ArraySegment<byte> memory)
    {
        Invariant.Check(memory.Count >= _front + _back, $"{memory.Count} bytes have no room for {_front} free ones before and {_back} behind what is written.");
        (_bytes, _start, _limit) = (memory.Array!, memory.Offset + _front, memory.Offset + memory.Count - _back);
        _end = _start;
    }

    /// <summary>Makes space for at least <paramref name="bytes"/> more. Pass the bytes actually used to <see cref="Advance"/>.</summary>
    public Span<byte> Reserve(int bytes)
    {
        if (_limit - _end < bytes)
            Grow(bytes);
        return _bytes.AsSpan(_end, _limit - _end);
    }

    /// <summary>Counts bytes that were written into the span from <see cref="Reserve"/>.</summary>
    public void Advance(int bytes) => _end += bytes;

    /// <summary>Appends bytes.</summary>
    public void Append(ReadOnlySpan<byte> bytes)
    {
        bytes.CopyTo(Reserve(bytes.Length));
        _end += bytes.Length;
    }

    /// <summary>Appends a number as a <see cref="Varint"/>.</summary>
    public void AppendNumber(ulong number) => Advance(Varint.Write(Reserve(Varint.BytesMax), number));

    private void Grow(int bytes)
    {
        // A little more than much, because something short often follows, for which all of it would be copied again.
        var room = Math.Max(checked(Count + bytes + (bytes / 64)), Capacity * 2);
        var larger = GC.AllocateUninitializedArray<byte>(_front + room + _back);
        Written.CopyTo(larger.AsSpan(_front));
        (_bytes, _start, _end, _limit) = (larger, _front, _front + Count, _front + room);
    }

    /// <summary>Appends a length and the bytes.</summary>
    public void AppendWithLength(ReadOnlySpan<byte> bytes)
    {
        AppendNumber((ulong)bytes.Length);
        Append(bytes);
    }
}
