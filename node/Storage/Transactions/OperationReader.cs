using System.Buffers.Binary;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;

namespace KvCluster.Storage.Transactions;

/// <summary>
/// Iterates over the operations of a payload. Leader, follower and recovery all use it. An operation that is unknown or malformed causes an
/// <see cref="UnreadableRecordException"/>, and the replica stops (F24).
/// </summary>
internal ref struct OperationReader(ReadOnlySpan<byte> payload)
{
    private ReadOnlySpan<byte> _rest = payload;

    /// <summary>The kind of operation.</summary>
    public OperationCode Code { get; private set; }

    /// <summary>The key that it changes, that of the set that it changes, or the first one of a range, which is empty for the first key there is.</summary>
    public ReadOnlySpan<byte> Key { get; private set; }

    /// <summary>The key at which a range ends, which is not in it; empty for a range without an end.</summary>
    public ReadOnlySpan<byte> KeyEnd { get; private set; }

    /// <summary>The member that is added to a set or removed from it, or the one at which the delete of a set ends; empty if it ends at none.</summary>
    public ReadOnlySpan<byte> Member { get; private set; }

    /// <summary>The life of the key of a put.</summary>
    public KeyLife Life { get; private set; }

    /// <summary>When the key of a touch or an expiry expires, in milliseconds of shard time; 0 = never.</summary>
    public ulong ExpiryMilliseconds { get; private set; }

    /// <summary>The etag that the key had when its expiry was set.</summary>
    public Etag Etag { get; private set; }

    /// <summary>The etag of the opening of a session that is forgotten to own a key, whose etag is <see cref="Etag"/>.</summary>
    public Etag Opened { get; private set; }

    /// <summary>The value of a put. Like each of these properties, undefined for operations that do not have it.</summary>
    public ReadOnlySpan<byte> Value { get; private set; }

    /// <summary>The session that is opened or ended.</summary>
    public UInt128 Session { get; private set; }

    /// <summary>The owner that opens it.</summary>
    public QuotaOwner Owner { get; private set; }

    /// <summary>The lifetime with which it is opened; 0 = none.</summary>
    public ulong LifetimeMilliseconds { get; private set; }

    /// <summary>What is left of its lifetime; 0 = that is not said any more.</summary>
    public ulong LeftMilliseconds { get; private set; }

    /// <summary>The results of a session; see <see cref="Sessions.ResultsReader"/>.</summary>
    public ReadOnlySpan<byte> Results { get; private set; }

    /// <summary>Moves to the next operation; false at the end.</summary>
    public bool MoveNext()
    {
        if (_rest.IsEmpty)
            return false;
        Code = (OperationCode)_rest[0];
        _rest = _rest[1..];
        switch (Code)
        {
            case OperationCode.Put or OperationCode.PutNumbered:
                Key = ReadBytes();
                ReadValue();
                return true;
            case OperationCode.Delete or OperationCode.DeleteOwned:
                Key = ReadBytes();
                return true;
            case OperationCode.Touch:
                Key = ReadBytes();
                ExpiryMilliseconds = ReadNumber();
                return true;
            case OperationCode.Expire or OperationCode.ForgetExpiry:
                Key = ReadBytes();
                ExpiryMilliseconds = ReadNumber();
                Etag = new Etag(ReadNumber(), ReadNumber());
                return true;
            case OperationCode.ForgetOwned:
                Opened = new Etag(ReadNumber(), ReadNumber());
                Etag = new Etag(ReadNumber(), ReadNumber());
                return true;
            case OperationCode.SetAdd or OperationCode.SetRemove or OperationCode.SetDelete:
                Key = ReadBytes();
                Member = ReadBytes();
                return true;
            case OperationCode.DeleteRange:
                Key = ReadBytes();
                KeyEnd = ReadBytes();
                return true;
            case OperationCode.SessionOpen:
                Session = ReadSession();
                Owner = new QuotaOwner(BinaryPrimitives.ReadUInt64LittleEndian(Take(sizeof(ulong))));
                LifetimeMilliseconds = ReadNumber();
                return true;
            case OperationCode.SessionEnd:
                Session = ReadSession();
                return true;
            case OperationCode.SessionLeft:
                Session = ReadSession();
                LeftMilliseconds = ReadNumber();
                return true;
            case OperationCode.Results:
                Results = ReadBytes();
                return true;
            default:
                throw new UnreadableRecordException($"Operation code {(byte)Code} is not known to this version.");
        }
    }

    private static UnreadableRecordException Malformed() => new("An operation in a record is truncated or malformed.");

    private void ReadValue()
    {
        if (_rest.IsEmpty)
            throw Malformed();
        var flags = _rest[0];
        _rest = _rest[1..];
        if (!KeyLife.AreKnown(flags))
            throw new UnreadableRecordException($"Value flags {flags:X2} are not known to this version.");
        Life = default;
        if (flags != 0)
            Life = KeyLife.TryRead(ref _rest, flags, out var life) ? life : throw Malformed();
        Value = ReadBytes();
    }

    private ReadOnlySpan<byte> ReadBytes()
    {
        var length = ReadNumber();
        return length <= (ulong)_rest.Length ? Take((int)length) : throw Malformed();
    }

    private UInt128 ReadSession() => BinaryPrimitives.ReadUInt128BigEndian(Take(Operations.SessionBytes));

    private ReadOnlySpan<byte> Take(int count)
    {
        if (count > _rest.Length)
            throw Malformed();
        var taken = _rest[..count];
        _rest = _rest[count..];
        return taken;
    }

    private ulong ReadNumber() => Varint.TryRead(ref _rest, out var number) ? number : throw Malformed();
}
