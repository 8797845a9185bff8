using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Storage.Trees;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>A SetCount.</summary>
internal sealed class SetCountQuery : SnapshotQuery
{
    /// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
    public SetCountQuery(ReadOnlySpan<byte> request, out ReadOnlySpan<byte> options)
    {
        options = default;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            if (field == SetCountRequest.KeyFieldNumber)
                Key = reader.ReadBytes().ToArray();
            else if (field == SetCountRequest.ReadFieldNumber)
                options = reader.ReadBytes();
            else
                reader.Skip();
        }
    }

    public byte[] Key { get; } = [];

    public override bool Step(TimeProvider clock, long until)
    {
        if (!Read.Snapshot.TryGetSet(Key, out var set))
            return true;
        var writer = new WireWriter(Answer.Append(WireWriter.VarintFieldSize(set.Count) + WireWriter.BytesFieldSize(WireWriter.EtagBytes)));
        writer.VarintField(SetCountResponse.CountFieldNumber, set.Count);
        writer.EtagField(SetCountResponse.EtagFieldNumber, set.Etag);
        return true;
    }
}

/// <summary>One page of the members of a set.</summary>
internal sealed class SetScanQuery : SnapshotQuery
{
    private const uint MembersDefault = 1_000;
    private const uint MembersMax = 10_000;

    private readonly KeyBounds _bounds;
    private readonly bool _isReverse;
    private readonly uint _membersMax = MembersDefault;
    private readonly ApiError? _tooLong;

    /// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
    public SetScanQuery(ReadOnlySpan<byte> request, out ReadOnlySpan<byte> options)
    {
        options = default;
        byte[] start = [], prefix = [], after = [];
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case SetScanRequest.KeyFieldNumber: Key = reader.ReadBytes().ToArray(); break;
                case SetScanRequest.StartFieldNumber: start = reader.ReadBytes().ToArray(); break;
                case SetScanRequest.PrefixFieldNumber: prefix = reader.ReadBytes().ToArray(); break;
                case SetScanRequest.ReverseFieldNumber: _isReverse = reader.ReadBool(); break;
                case SetScanRequest.LimitFieldNumber: _membersMax = reader.ReadUInt32() is > 0 and var limit ? limit : MembersDefault; break;
                case SetScanRequest.ReadFieldNumber: options = reader.ReadBytes(); break;
                case SetScanRequest.ResumeAfterFieldNumber: after = reader.ReadBytes().ToArray(); break;
                default: reader.Skip(); break;
            }
        }
        _tooLong = start.Length > KvLimits.MemberBoundBytesMax ? ApiErrors.MemberBoundTooLong
            : Math.Max(prefix.Length, after.Length) > KvLimits.MemberBytesMax ? ApiErrors.MemberTooLong
            : null;
        _bounds = KeyBounds.Of(start, default, prefix);
        if (after.Length > 0)
            _bounds = _bounds.Behind(after, _isReverse);
    }

    public byte[] Key { get; } = [];

    public ApiError? Check()
    {
        if (_membersMax > MembersMax)
            return ApiErrors.BadRequest($"A page has at most {MembersMax} members.");
        return RequestRules.CheckKey(Key) ?? _tooLong;
    }

    public override bool Step(TimeProvider clock, long until)
    {
        if (!Read.Snapshot.TryGetSet(Key, out var set))
            return true;
        using var members = set.Members();
        var left = _membersMax;
        var isMore = false;
        for (var found = Begin(members); found && IsWithin(members.Member); found = _isReverse ? members.MovePrevious() : members.MoveNext())
        {
            isMore = left == 0 || Answer.Count + WireWriter.BytesFieldSize(members.Member.Length) > EntryPages.EntriesBytesMax;
            if (isMore)
                break;
            AppendBytes(SetScanResponse.MembersFieldNumber, members.Member);
            left--;
        }
        var writer = new WireWriter(Answer.Append(
            WireWriter.VarintFieldSize(isMore ? 1u : 0) + WireWriter.VarintFieldSize(set.Count) + WireWriter.BytesFieldSize(WireWriter.EtagBytes)));
        writer.VarintField(SetScanResponse.MoreFieldNumber, isMore ? 1u : 0);
        writer.VarintField(SetScanResponse.CountFieldNumber, set.Count);
        writer.EtagField(SetScanResponse.EtagFieldNumber, set.Etag);
        return true;
    }

    private bool Begin(SetCursor members)
    {
        if (!_isReverse)
            return _bounds.Lower.IsEmpty ? members.MoveNext() : members.Seek(_bounds.Lower.Span);
        if (!_bounds.Upper.IsEmpty)
            members.Seek(_bounds.Upper.Span);
        return members.MovePrevious();
    }

    private bool IsWithin(ReadOnlySpan<byte> member) => _isReverse
        ? member.SequenceCompareTo(_bounds.Lower.Span) >= 0
        : _bounds.Upper.IsEmpty || member.SequenceCompareTo(_bounds.Upper.Span) < 0;
}
