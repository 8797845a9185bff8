using KvCluster.Node.Api.Calls;
using KvCluster.Node.Api.Errors;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Reads;

/// <summary>A Get of the key nearest to another one, in one shard.</summary>
internal sealed class NearestQuery : SnapshotQuery
{
    private readonly Nearest _nearest;
    private readonly byte[] _within = [];
    private readonly bool _withLife;

    /// <exception cref="MalformedMessageException">The bytes are not a valid message.</exception>
    public NearestQuery(ReadOnlySpan<byte> request, out ReadOnlySpan<byte> options)
    {
        options = default;
        var reader = new WireReader(request);
        for (int field; (field = reader.ReadField()) != 0;)
        {
            switch (field)
            {
                case GetRequest.KeyFieldNumber: Key = reader.ReadBytes().ToArray(); break;
                case GetRequest.ReadFieldNumber: options = reader.ReadBytes(); break;
                case GetRequest.NearestFieldNumber: _nearest = (Nearest)reader.ReadUInt32(); break;
                case GetRequest.WithinFieldNumber: _within = reader.ReadBytes().ToArray(); break;
                case GetRequest.WithLifeFieldNumber: _withLife = reader.ReadBool(); break;
                default: reader.Skip(); break;
            }
        }
    }

    public byte[] Key { get; } = [];

    private bool IsUpwards => _nearest is Nearest.Ceiling or Nearest.Higher;

    public ApiError? Check() => _nearest > Nearest.Higher
        ? ApiErrors.BadRequest("The request asks for a nearest key in a way that this version does not know.")
        : RequestRules.CheckKey(Key) ?? (_within.Length > KvLimits.KeyBytesMax ? ApiErrors.KeyTooLong : null);

    public override bool Step(TimeProvider clock, long until)
    {
        var bounds = KeyBounds.Of(default, default, _within);
        using var cursor = Read.Snapshot.Cursor(TreeId.Kv, bounds.Lower.Span, bounds.Upper.Span);
        var isAtOrAfter = cursor.Seek(Key);
        var isExact = isAtOrAfter && cursor.Key.SequenceEqual(Key);
        var found = _nearest switch
        {
            Nearest.Ceiling => isAtOrAfter,
            Nearest.Higher => isExact ? cursor.MoveNext() : isAtOrAfter,
            Nearest.Floor => isExact || cursor.MovePrevious(),
            Nearest.Lower => cursor.MovePrevious(),
            _ => isExact,
        };
        if (found)
        {
            var value = KvValue.Read(cursor.Value, out var etag, out var keyLife);
            var life = LifeField.Of(keyLife, _withLife ? Shard.TimeMs : null);
            new WireWriter(Answer.Append(WireWriter.VarintFieldSize(1))).VarintField(GetResponse.FoundFieldNumber, 1);
            AppendBytes(GetResponse.ValueFieldNumber, value);
            new WireWriter(Answer.Append(WireWriter.BytesFieldSize(WireWriter.EtagBytes))).EtagField(GetResponse.EtagFieldNumber, etag);
            AppendBytes(GetResponse.KeyFieldNumber, cursor.Key);
            var writer = new WireWriter(Answer.Append(life.Size));
            life.WriteTo(ref writer, GetResponse.LifeFieldNumber);
        }
        else if (_nearest > Nearest.Exact)
        {
            // The neighbouring shard may have a key within the prefix.
            var bound = (IsUpwards ? Route.End : Route.Start).Span;
            if (bounds.GoesOnBeyond(bound, !IsUpwards))
                AppendBytes(GetResponse.NextBoundFieldNumber, bound);
        }
        return true;
    }
}
