using System.Buffers.Binary;
using KvCluster.Storage.Encoding;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Iterates over the operations of a <see cref="WriteRequest"/>. They never leave the process, so they are trusted. Any thread that owns the request.
/// </summary>
internal ref struct RequestReader(ReadOnlySpan<byte> operations)
{
    private ReadOnlySpan<byte> _rest = operations;
    private ReadOnlySpan<byte> _from = operations;

    /// <summary>The kind of operation.</summary>
    public RequestOperation Code { get; private set; }

    /// <summary>The key, that of the set, or the first one of a range, which is empty for the first key there is.</summary>
    public ReadOnlySpan<byte> Key { get; private set; }

    /// <summary>The key at which a range ends, which is not in it; empty for a range without an end.</summary>
    public ReadOnlySpan<byte> KeyEnd { get; private set; }

    /// <summary>The member of a set, if the operation names one.</summary>
    public ReadOnlySpan<byte> Member { get; private set; }

    /// <summary>The value of a put. Like each of these properties, undefined for operations that do not have it.</summary>
    public ReadOnlySpan<byte> Value { get; private set; }

    /// <summary>What a put asks for besides.</summary>
    public PutTerms Terms { get; private set; }

    /// <summary>What an increment adds.</summary>
    public long By { get; private set; }

    /// <summary>How long a touched key lives; 0 = it does not expire.</summary>
    public ulong TtlMilliseconds { get; private set; }

    /// <summary>The most entries of a scan.</summary>
    public int Limit { get; private set; }

    /// <summary>Whether a scan omits the values.</summary>
    public bool KeysOnly { get; private set; }

    /// <summary>The operation's bytes. Below 128 a record has the same.</summary>
    public readonly ReadOnlySpan<byte> Encoded => _from[..^_rest.Length];

    /// <summary>Bytes of the operations behind this one.</summary>
    public readonly int BytesLeft => _rest.Length;

    /// <summary>Moves to the next operation; false at the end.</summary>
    public bool MoveNext()
    {
        if (_rest.IsEmpty)
            return false;
        _from = _rest;
        Code = (RequestOperation)_rest[0];
        _rest = _rest[1..];
        switch (Code)
        {
            case RequestOperation.Put:
                Key = ReadBytes();
                // The flags of a life that is unlimited.
                _rest = _rest[1..];
                Value = ReadBytes();
                break;
            case RequestOperation.PutOnTerms:
                Key = ReadBytes();
                Value = ReadBytes();
                Terms = new PutTerms(ReadNumber(), ReadSession(), (byte)ReadNumber());
                break;
            case RequestOperation.Delete or RequestOperation.Get:
                Key = ReadBytes();
                break;
            case RequestOperation.Increment:
                Key = ReadBytes();
                Value = default;
                By = (long)Varint.Unfold(ReadNumber());
                break;
            case RequestOperation.Touch:
                Key = ReadBytes();
                TtlMilliseconds = ReadNumber();
                break;
            case RequestOperation.SetAdd or RequestOperation.SetRemove or RequestOperation.SetDelete or RequestOperation.SetGet:
                Key = ReadBytes();
                Member = ReadBytes();
                break;
            case RequestOperation.DeleteRange:
                Key = ReadBytes();
                KeyEnd = ReadBytes();
                break;
            case RequestOperation.Scan:
                Key = ReadBytes();
                KeyEnd = ReadBytes();
                Limit = (int)ReadNumber();
                KeysOnly = ReadNumber() != 0;
                break;
            default:
                // The opening or the end of a session is the only operation of its request.
                _rest = default;
                break;
        }
        return true;
    }

    private UInt128 ReadSession()
    {
        var session = BinaryPrimitives.ReadUInt128BigEndian(_rest);
        _rest = _rest[Operations.SessionBytes..];
        return session;
    }

    private ulong ReadNumber()
    {
        _ = Varint.TryRead(ref _rest, out var number);
        return number;
    }

    private ReadOnlySpan<byte> ReadBytes()
    {
        var length = (int)ReadNumber();
        var bytes = _rest[..length];
        _rest = _rest[length..];
        return bytes;
    }
}
