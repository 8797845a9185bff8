using System.Buffers.Binary;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Sessions;

/// <summary>
/// Iterates over one session's results in a record (FORMAT.md, "Results"); <see cref="SessionResults"/> writes them. Malformed bytes cause a
/// <see cref="CorruptStoreException"/>, and the replica stops.
/// </summary>
internal ref struct ResultsReader
{
    private ReadOnlySpan<byte> _rest;
    private ulong _change;

    /// <summary>Reads the fields before the results.</summary>
    /// <param name="content">The operation's content after its length.</param>
    /// <param name="etagFirst">The etag of the record's first change.</param>
    public ResultsReader(ReadOnlySpan<byte> content, Etag etagFirst)
    {
        _rest = content;
        Epoch = etagFirst.Epoch;
        _change = etagFirst.Change - 1;
        Session = BinaryPrimitives.ReadUInt128BigEndian(Take(Operations.SessionBytes));
        LowestOpen = Read();
        Sequence = LowestOpen - 1;
    }

    /// <summary>The session.</summary>
    public UInt128 Session { get; }

    /// <summary>The session's lowest open sequence.</summary>
    public ulong LowestOpen { get; }

    /// <summary>The sequence of the request that the result belongs to.</summary>
    public ulong Sequence { get; private set; }

    /// <summary>The answer that the request got.</summary>
    public WriteResult Result { get; private set; }

    /// <summary>The digest of the request.</summary>
    public uint Digest { get; private set; }

    /// <summary>What is kept apart of a result with those of its operations; else empty.</summary>
    public ReadOnlySpan<byte> Kept { get; private set; }

    private ulong Epoch { get; }

    /// <summary>Moves to the next result; false at the end.</summary>
    public bool MoveNext()
    {
        if (_rest.IsEmpty)
            return false;
        Sequence += 1 + Varint.Unfold(Read());
        var step = Read();
        _change += step >> StoredResult.KindBits;
        var (kind, etag) = ((ResultKind)(step & StoredResult.KindMask), new Etag(Epoch, _change));
        var number = kind is ResultKind.Applied or ResultKind.WithResults ? 0 : ReadNumber();
        Digest = BinaryPrimitives.ReadUInt32LittleEndian(Take(sizeof(uint)));
        Kept = kind == ResultKind.WithResults ? ReadBytes() : default;
        Result = kind == ResultKind.WithResults ? StoredResult.ReadKept(Kept, etag) : new StoredResult(kind, number).At(etag);
        return true;
    }

    private uint ReadNumber() => Read() is <= uint.MaxValue and var number ? (uint)number : throw Malformed();

    private ulong Read() => Varint.TryRead(ref _rest, out var value) ? value : throw Malformed();

    private ReadOnlySpan<byte> ReadBytes() => Read() is var length && length <= (ulong)_rest.Length ? Take((int)length) : throw Malformed();

    private ReadOnlySpan<byte> Take(int count)
    {
        if (count > _rest.Length)
            throw Malformed();
        var taken = _rest[..count];
        _rest = _rest[count..];
        return taken;
    }

    private static CorruptStoreException Malformed() => new("The results of a session in a record are truncated or malformed.");
}
