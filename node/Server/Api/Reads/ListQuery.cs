using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Storage.Pages;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>One page of a List, as far as it is in one shard. <see cref="ListPageToken"/> says where the next one begins.</summary>
internal sealed class ListQuery : SnapshotQuery
{
    private readonly ApiError? _badBounds;
    private readonly ApiError? _badToken;
    private readonly uint _checksum;
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
        _entriesMax = entries == 0 ? KvLimits.ListEntriesDefault : entries;
        _bytesMax = bytes == 0 ? KvLimits.ListBytesDefault : Math.Min(bytes, EntryPages.EntriesBytesMax);
        _badBounds = RequestRules.CheckBounds(start, end, prefix);
        Bounds = KeyBounds.Of(start, end, prefix);
        _checksum = ListPageToken.ChecksumOf(IsReverse, _isKeysOnly, start, end, prefix);
        if (token.Length == 0)
            return;
        _badToken = ListPageToken.TryRead(token, _checksum, out var place);
        if (_badToken is not null)
            return;
        Token = place.Snapshot;
        Bounds = place.RestOf(Bounds, IsReverse);
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
        if (_badToken is not null)
            return _badToken;
        if (_entriesMax > KvLimits.ListEntriesMax)
            return ApiErrors.BadRequest($"A page has at most {KvLimits.ListEntriesMax} entries.");
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
            ListPageToken.Append(Answer, _tokenForMore, isBound: false, _checksum, entries.LastKeyOf(Answer).ToArray());
            var keptMs = (ulong)KeptFor.TotalMilliseconds;
            new WireWriter(Answer.Append(WireWriter.OptionalVarintFieldSize(keptMs))).OptionalVarintField(ListResponse.SnapshotKeptMsFieldNumber, keptMs);
            return true;
        }
        var bound = (IsReverse ? Route.Start : Route.End).Span;
        if (Bounds.GoesOnBeyond(bound, IsReverse))
            ListPageToken.Append(Answer, 0, isBound: true, _checksum, bound);
        return true;
    }
}
