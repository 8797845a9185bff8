namespace KvCluster.Storage.Encoding;

/// <summary>A growing array that is written at its end and reused. Not thread-safe.</summary>
internal sealed class ByteBuffer(int capacity)
{
    private byte[] _bytes = GC.AllocateUninitializedArray<byte>(capacity);

    /// <summary>Bytes written.</summary>
    public int Count { get; private set; }

    /// <summary>Bytes allocated.</summary>
    public int Capacity => _bytes.Length;

    /// <summary>What was written.</summary>
    public ReadOnlySpan<byte> Written => _bytes.AsSpan(0, Count);

    /// <summary>Discards what was written. Keeps the array unless it is larger than <paramref name="capacityMax"/>.</summary>
    public void Clear(int capacityMax)
    {
        Count = 0;
        if (_bytes.Length > capacityMax)
            _bytes = GC.AllocateUninitializedArray<byte>(capacity);
    }

    /// <summary>Makes space for at least <paramref name="bytes"/> more. Pass the bytes actually used to <see cref="Advance"/>.</summary>
    public Span<byte> Reserve(int bytes)
    {
        if (_bytes.Length - Count < bytes)
            Grow(bytes);
        return _bytes.AsSpan(Count);
    }

    /// <summary>Counts bytes that were written into the span from <see cref="Reserve"/>.</summary>
    public void Advance(int bytes) => Count += bytes;

    /// <summary>Appends bytes.</summary>
    public void Append(ReadOnlySpan<byte> bytes)
    {
        bytes.CopyTo(Reserve(bytes.Length));
        Count += bytes.Length;
    }

    /// <summary>Appends a number as a <see cref="Varint"/>.</summary>
    public void AppendNumber(ulong number) => Advance(Varint.Write(Reserve(Varint.BytesMax), number));

    private void Grow(int bytes)
    {
        var larger = GC.AllocateUninitializedArray<byte>(Math.Max(checked(Count + bytes), _bytes.Length * 2));
        Written.CopyTo(larger);
        _bytes = larger;
    }

    /// <summary>Appends a length and the bytes.</summary>
    public void AppendWithLength(ReadOnlySpan<byte> bytes)
    {
        AppendNumber((ulong)bytes.Length);
        Append(bytes);
    }
}
