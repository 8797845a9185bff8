using System.Buffers.Binary;
using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>
/// One page of a List. Its token for the next page has the token of the snapshot (8 bytes, 0 if the page begins in another shard), whether the key itself is
/// the bound (1 byte), a checksum of the range (4 bytes), and a key: the last one of this page, or the bound between the shards.
/// </summary>
internal sealed class ListQuery : SnapshotQuery
{
    private const int BoundAt = KeptSnapshots.TokenBytes;
    private const int RangeAt = BoundAt + 1;
    private const int PlaceBytes = RangeAt + sizeof(uint);
    private const int EntriesDefault = 1_000;
    private const int EntriesMax = 10_000;
    private const int BytesDefault = 1 << 20;

    private readonly ApiError? _badBounds;
    private readonly bool _isTokenBad;
    private readonly bool _isTokenOfAnother;
    private readonly uint _range;
    private readonly bool _isKeysOnly;
    private readonly bool _withLife;
    private readonly ulong _entriesMax;
    private readonly ulong _bytesMax;
    private ulong _tokenForMore;

    /// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
    public ListQuery(ReadOnlySpan<byte> request, out ReadOnlySpan<byte> options)
    {
        options = default;
        byte[] start = [], end = [], prefix = [], token = [];
        ulong entries = 0, bytes = 0;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case ListRequest.StartFieldNumber: start = reader.ReadBytes().ToArray(); break;
                case ListRequest.EndFieldNumber: end = reader.ReadBytes().ToArray(); break;
                case ListRequest.PrefixFieldNumber: prefix = reader.ReadBytes().ToArray(); break;
                case ListRequest.ReverseFieldNumber: IsReverse = reader.ReadBool(); break;
                case ListRequest.LimitFieldNumber: entries = reader.ReadUInt32(); break;
                case ListRequest.KeysOnlyFieldNumber: _isKeysOnly = reader.ReadBool(); break;
                case ListRequest.BytesMaxFieldNumber: bytes = reader.ReadUInt32(); break;
                case ListRequest.ReadFieldNumber: options = reader.ReadBytes(); break;
                case ListRequest.PageTokenFieldNumber: token = reader.ReadBytes().ToArray(); break;
                case ListRequest.NewerSnapshotFieldNumber: IsNewerGood = reader.ReadBool(); break;
                case ListRequest.WithLifeFieldNumber: _withLife = reader.ReadBool(); break;
                default: reader.Skip(); break;
            }
        }
        (_entriesMax, _bytesMax) = (entries == 0 ? EntriesDefault : entries, bytes == 0 ? BytesDefault : Math.Min(bytes, EntryPages.EntriesBytesMax));
        _badBounds = RequestRules.CheckBounds(start, end, prefix);
        Bounds = KeyBounds.Of(start, end, prefix);
        _range = ChecksumOf(start, end, prefix);
        if (token.Length == 0)
            return;
        _isTokenBad = token.Length is <= PlaceBytes or > PlaceBytes + KvLimits.KeyBytesMax || token[BoundAt] > 1;
        _isTokenOfAnother = !_isTokenBad && BinaryPrimitives.ReadUInt32BigEndian(token.AsSpan(RangeAt)) != _range;
        if (_isTokenBad || _isTokenOfAnother)
            return;
        Token = BinaryPrimitives.ReadUInt64BigEndian(token);
        var key = token.AsMemory(PlaceBytes);
        Bounds = token[BoundAt] == 1 ? Bounds.From(key, IsReverse) : Bounds.Behind(key, IsReverse);
    }

    public bool IsReverse { get; }

    /// <summary>The part of the range that is left.</summary>
    public KeyBounds Bounds { get; }

    /// <summary>The snapshot of the page before; 0 if this page begins in a new one.</summary>
    public ulong Token { get; private set; }

    /// <summary>Whether a newer snapshot will do if that one is not kept any more.</summary>
    public bool IsNewerGood { get; }

    public override ulong TokenBefore => Token;

    public override ulong TokenForMore => _tokenForMore;

    /// <summary>The page begins in a new snapshot, because that of the page before is not kept any more.</summary>
    public void TakeNewer() => Token = 0;

    public ApiError? Check()
    {
        if (_isTokenBad)
            return ApiErrors.BadRequest("The page token is none that came with a page.");
        if (_isTokenOfAnother)
            return ApiErrors.BadRequest("The page token is of another listing: range, order, and whether values are returned must be the same for each page.");
        if (_entriesMax > EntriesMax)
            return ApiErrors.BadRequest($"A page has at most {EntriesMax} entries.");
        return _badBounds;
    }

    public override bool Step(TimeProvider clock, long until)
    {
        using var cursor = Read.Snapshot.Cursor(TreeId.Kv, Bounds.Lower.Span, Bounds.Upper.Span);
        var entries = new EntryPages(
            cursor, IsReverse, _isKeysOnly) { EntriesLeft = _entriesMax, BytesLeft = _bytesMax, NowMs = _withLife ? Shard.TimeMs : null };
        if ((entries.Fill(Answer, EntryPages.EntriesBytesMax) || entries.IsAtLimit) && entries.HasMore())
        {
            _tokenForMore = Token == 0 ? KeptSnapshots.NewToken() : Token;
            AppendToken(_tokenForMore, isBound: false, entries.LastKeyOf(Answer).ToArray());
            var keptMs = (ulong)KeptFor.TotalMilliseconds;
            new WireWriter(Answer.Append(WireWriter.OptionalVarintFieldSize(keptMs))).OptionalVarintField(ListResponse.SnapshotKeptMsFieldNumber, keptMs);
            return true;
        }
        var bound = (IsReverse ? Route.Start : Route.End).Span;
        if (Bounds.GoesOnBeyond(bound, IsReverse))
            AppendToken(0, isBound: true, bound);
        return true;
    }

    private void AppendToken(ulong snapshot, bool isBound, ReadOnlySpan<byte> key)
    {
        var writer = new WireWriter(Answer.Append(WireWriter.BytesFieldSize(PlaceBytes + key.Length)));
        writer.BytesHeader(ListResponse.NextPageTokenFieldNumber, PlaceBytes + key.Length);
        var place = writer.Take(PlaceBytes + key.Length);
        BinaryPrimitives.WriteUInt64BigEndian(place, snapshot);
        place[BoundAt] = isBound ? (byte)1 : (byte)0;
        BinaryPrimitives.WriteUInt32BigEndian(place[RangeAt..], _range);
        key.CopyTo(place[PlaceBytes..]);
    }

    // The checksum of all fields that must be the same for each page.
    private uint ChecksumOf(byte[] start, byte[] end, byte[] prefix)
    {
        var state = Crc32C.Extend(uint.MaxValue, [IsReverse ? (byte)1 : (byte)0, _isKeysOnly ? (byte)1 : (byte)0]);
        Span<byte> length = stackalloc byte[sizeof(int)];
        foreach (var bytes in (byte[][])[start, end, prefix])
        {
            BinaryPrimitives.WriteInt32BigEndian(length, bytes.Length);
            state = Crc32C.Extend(Crc32C.Extend(state, length), bytes);
        }
        return state;
    }
}
