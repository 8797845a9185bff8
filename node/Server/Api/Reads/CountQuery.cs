using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Storage.Pages;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>A Count of the keys of a range, as far as it is in one shard.</summary>
internal sealed class CountQuery : SnapshotQuery
{
    private readonly ApiError? _badBounds;

    /// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
    public CountQuery(ReadOnlySpan<byte> request, out ReadOnlySpan<byte> options)
    {
        options = default;
        byte[] start = [], end = [], prefix = [];
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case CountRequest.StartFieldNumber: start = reader.ReadBytes().ToArray(); break;
                case CountRequest.EndFieldNumber: end = reader.ReadBytes().ToArray(); break;
                case CountRequest.PrefixFieldNumber: prefix = reader.ReadBytes().ToArray(); break;
                case CountRequest.ReadFieldNumber: options = reader.ReadBytes(); break;
                default: reader.Skip(); break;
            }
        }
        _badBounds = RequestRules.CheckBounds(start, end, prefix);
        Bounds = KeyBounds.Of(start, end, prefix);
    }

    public KeyBounds Bounds { get; }

    public ApiError? Check() => _badBounds;

    public override bool Step(TimeProvider clock, long until)
    {
        var count = Read.Snapshot.CountRange(TreeId.Kv, Bounds.Lower.Span, Bounds.Upper.Span);
        new WireWriter(Answer.Append(WireWriter.VarintFieldSize(count))).VarintField(CountResponse.CountFieldNumber, count);
        var next = Route.End.Span;
        if (Bounds.GoesOnBeyond(next, reverse: false))
            AppendBytes(CountResponse.NextStartFieldNumber, next);
        return true;
    }
}
