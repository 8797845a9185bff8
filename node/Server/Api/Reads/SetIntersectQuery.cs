using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Node.Hosting;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>
/// What several sets of one shard have in common: a page of it, its size, and for sets below some prefixes how many of it they have. With facets the
/// intersection is copied first, because every facet is compared with it. What it holds is taken from <see cref="QueryMemory"/> first.
/// </summary>
internal sealed class SetIntersectQuery : SnapshotQuery
{
    private const int KeysMax = 64;
    private const int PrefixesMax = 16;
    private const uint MembersMax = 10_000;
    private const uint FacetsDefault = 10;
    private const uint FacetsMax = 10_000;

    /// <summary>Bytes of an answer: what any gRPC client receives by default.</summary>
    private const int AnswerBytesMax = EntryPages.EntriesBytesMax;

    /// <summary>Bytes of an answer that are counted at a time. The first ones are not, since the number of requests is bounded.</summary>
    private const int AnswerUnitBytes = 64 << 10;

    /// <summary>Members between two looks at the clock.</summary>
    private const int MembersPerLook = 256;

    private readonly List<byte[]> _prefixes = [];
    private readonly byte[] _start = [];
    private readonly uint _membersMax;
    private readonly uint _facetsMax = FacetsDefault;
    private readonly QueryMemory _memory;
    private readonly MemberList _list;
    private FacetRanking? _facets;
    private SetIntersection? _common;
    private Cursor? _sets;
    private long _taken;
    private int _answerCounted = AnswerUnitBytes;
    private bool _isFaceted;
    private bool _isCounted;
    private bool _isCounting;
    private bool _isMore;
    private ulong _count;
    private uint _returned;
    private int _prefix;

    /// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
    public SetIntersectQuery(ReadOnlySpan<byte> request, QueryMemory memory, out ReadOnlySpan<byte> options)
    {
        options = default;
        (_memory, _list) = (memory, new MemberList(TryTake));
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                // One more than allowed is enough to refuse the request.
                case SetIntersectRequest.KeysFieldNumber when Keys.Count <= KeysMax: Keys.Add(reader.ReadBytes().ToArray()); break;
                case SetIntersectRequest.StartFieldNumber: _start = reader.ReadBytes().ToArray(); break;
                case SetIntersectRequest.LimitFieldNumber: _membersMax = reader.ReadUInt32(); break;
                case SetIntersectRequest.FacetPrefixesFieldNumber when _prefixes.Count <= PrefixesMax: _prefixes.Add(reader.ReadBytes().ToArray()); break;
                case SetIntersectRequest.FacetsMaxFieldNumber: _facetsMax = reader.ReadUInt32() is > 0 and var most ? most : FacetsDefault; break;
                case SetIntersectRequest.ReadFieldNumber: options = reader.ReadBytes(); break;
                default: reader.Skip(); break;
            }
        }
    }

    /// <summary>The keys of the sets.</summary>
    public List<byte[]> Keys { get; } = [];

    public ApiError? Check()
    {
        if (Keys.Count is 0 or > KeysMax)
            return ApiErrors.BadRequest($"An intersection is of 1 to {KeysMax} sets.");
        if (_prefixes.Count > PrefixesMax)
            return ApiErrors.BadRequest($"An intersection has at most {PrefixesMax} facet prefixes.");
        if (_membersMax > MembersMax || _facetsMax > FacetsMax)
            return ApiErrors.BadRequest($"A page has at most {MembersMax} members, and a prefix at most {FacetsMax} facets.");
        if (_start.Length > KvLimits.MemberBoundBytesMax)
            return ApiErrors.MemberBoundTooLong;
        foreach (var key in Keys.Concat(_prefixes))
        {
            if (RequestRules.CheckKey(key) is { } bad)
                return bad;
        }
        return null;
    }

    public override ApiError? CheckIn(HostedShard shard, ShardLookup lookup)
    {
        foreach (var key in Keys)
        {
            if (!shard.Owns(key))
                return ApiErrors.ShardsDiffer(shard, lookup.RouteOf(key));
        }
        foreach (var prefix in _prefixes)
        {
            var end = shard.Route.End.Span;
            // The range of the prefix ends where that of the shard does, or before.
            var endOfPrefix = KeyBounds.EndOfPrefix(prefix);
            if (!shard.Owns(prefix) || (!end.IsEmpty && (endOfPrefix.Length == 0 || endOfPrefix.AsSpan().SequenceCompareTo(end) > 0)))
                return ApiErrors.ShardsDiffer(shard, lookup.RouteOf(shard.Owns(prefix) ? end : prefix));
        }
        return null;
    }

    public override bool Step(TimeProvider clock, long until)
    {
        if (_prefixes.Count > 0 && !_isFaceted)
        {
            if (!_memory.TryEnterFaceted())
                return Refuse(ApiErrors.IntersectionsWait);
            _isFaceted = true;
        }
        if (!_isCounted && !Intersect(clock, until))
            return false;
        for (; Refusal is null && _prefix < _prefixes.Count; _prefix++)
        {
            if (_list.Count > 0 && !CountFacets(clock, until))
                return false;
            if (Refusal is null)
                AppendFacets();
        }
        return true;
    }

    public override void End()
    {
        _common?.Dispose();
        _sets?.Dispose();
        _list.Dispose();
        _memory.GiveBack(_taken);
        if (_isFaceted)
            _memory.LeaveFaceted();
    }

    // The page and the number of the common members, and with facets a list of them.
    private bool Intersect(TimeProvider clock, long until)
    {
        var found = _common is null ? Begin() : _common.IsPaused ? _common.Resume() : _common.MoveNext();
        for (var seen = 1; found || _common is { IsPaused: true }; found = found ? _common!.MoveNext() : _common!.Resume(), seen++)
        {
            if (!found)
            {
                if (clock.GetTimestamp() >= until)
                    return false;
                continue;
            }
            var member = _common!.Member;
            _count++;
            if (_returned < _membersMax && member.SequenceCompareTo(_start) >= 0)
                Return(member);
            else
                _isMore |= _membersMax > 0 && _returned == _membersMax;
            if (_prefixes.Count > 0)
                _ = _list.TryAdd(member);
            if (Refusal is not null)
                return true;
            if (seen % MembersPerLook == 0 && clock.GetTimestamp() >= until)
                return false;
        }
        var writer = new WireWriter(Answer.Append(WireWriter.VarintFieldSize(_isMore ? 1u : 0) + WireWriter.VarintFieldSize(_count)));
        writer.VarintField(SetIntersectResponse.MoreFieldNumber, _isMore ? 1u : 0);
        writer.VarintField(SetIntersectResponse.CountFieldNumber, _count);
        if (_list.Count > 0)
            _ = _list.TryBeginCounts();
        return _isCounted = true;
    }

    private void Return(ReadOnlySpan<byte> member)
    {
        // The page is full.
        if (Answer.Count + WireWriter.BytesFieldSize(member.Length) > EntryPages.EntriesBytesMax / 2)
        {
            _returned = _membersMax;
            _isMore = true;
            return;
        }
        if (!TryCountAnswer(WireWriter.BytesFieldSize(member.Length)))
            return;
        AppendBytes(SetIntersectResponse.MembersFieldNumber, member);
        _returned++;
    }

    private bool Begin()
    {
        var sets = new StoredSet[Keys.Count];
        for (var index = 0; index < sets.Length; index++)
        {
            if (!Read.Snapshot.TryGetSet(Keys[index], out sets[index]))
                return false;
        }
        _common = new SetIntersection(sets);
        return _common.Seek(default);
    }

    // Counts the sets below a prefix, until a time. True when they are counted and in order, or the query is refused.
    private bool CountFacets(TimeProvider clock, long until)
    {
        for (var isPrepared = _list.Prepare(); !isPrepared; isPrepared = _list.Prepare())
        {
            if (clock.GetTimestamp() >= until)
                return false;
        }
        _facets ??= new FacetRanking((int)_facetsMax, TryTake);
        _sets ??= Read.Snapshot.Cursor(TreeId.Sets, _prefixes[_prefix], KeyBounds.EndOfPrefix(_prefixes[_prefix]));
        while (_isCounting || _sets.MoveNext())
        {
            _isCounting = !(_isCounting ? _list.Resume(out var common) : _list.CountIn(_sets.Set, out common));
            if (!_isCounting && common > 0 && !_facets.TryAdd(_sets.Key, common))
                return true;
            if (clock.GetTimestamp() >= until)
                return false;
        }
        while (!_facets.Rank())
        {
            if (clock.GetTimestamp() >= until)
                return false;
        }
        return true;
    }

    private void AppendFacets()
    {
        var bytes = _facets?.MessageBytesOf() ?? 0;
        if (Answer.Count + WireWriter.BytesFieldSize(bytes) > AnswerBytesMax)
        {
            Refuse(ApiErrors.FacetsTooLarge(AnswerBytesMax));
            return;
        }
        if (!TryCountAnswer(WireWriter.BytesFieldSize(bytes)))
            return;
        var writer = new WireWriter(Answer.Append(WireWriter.BytesFieldSize(bytes)));
        writer.BytesHeader(SetIntersectResponse.FacetsFieldNumber, bytes);
        _facets?.WriteTo(ref writer);
        _sets?.Dispose();
        _sets = null;
    }

    // Takes memory for so many bytes before they are appended to the answer. False if there is none.
    private bool TryCountAnswer(int bytes)
    {
        for (; Answer.Count + bytes > _answerCounted; _answerCounted += AnswerUnitBytes)
        {
            if (!TryTake(AnswerUnitBytes))
                return false;
        }
        return true;
    }

    // Takes bytes before they are allocated, or returns some. If there is no room for them, the query is refused.
    private bool TryTake(long bytes)
    {
        if (bytes < 0)
            _memory.GiveBack(-bytes);
        else if (_taken + bytes > _memory.BytesOfOneMax)
            return !Refuse(ApiErrors.IntersectionTooLarge);
        else if (!_memory.TryTake(bytes, _taken))
            return !Refuse(ApiErrors.IntersectionsWait);
        _taken += bytes;
        return true;
    }

    private bool Refuse(ApiError refusal)
    {
        Refusal ??= refusal;
        return true;
    }
}
