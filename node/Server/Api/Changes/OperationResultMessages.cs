using KvCluster.Storage.Encoding;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Changes;

/// <summary>Encodes the engine's results of operations as messages <see cref="OperationResult"/>. Pure; any thread.</summary>
internal static class OperationResultMessages
{
    /// <summary>Bytes of all results as fields of one message.</summary>
    public static int Size(ReadOnlySpan<byte> results)
    {
        var size = 0;
        for (var reader = new OperationResultReader(results); reader.MoveNext();)
            size += WireWriter.BytesFieldSize(SizeOf(reader));
        return size;
    }

    /// <summary>Writes each result as a field with this number.</summary>
    public static void Write(ref WireWriter writer, int field, ReadOnlySpan<byte> results)
    {
        for (var reader = new OperationResultReader(results); reader.MoveNext();)
        {
            writer.BytesHeader(field, SizeOf(reader));
            if (reader.Etag != Etag.None)
                writer.EtagField(OperationResult.EtagFieldNumber, reader.Etag);
            if (reader.Existed is { } existed)
                writer.OptionalBoolField(OperationResult.ExistedFieldNumber, existed);
            if (reader.Number is { } number)
                writer.OptionalVarintField(OperationResult.NumberFieldNumber, WireWriter.Fold(number));
            while (reader.MoveToEntry())
            {
                writer.BytesHeader(OperationResult.EntriesFieldNumber, EntrySize(reader));
                writer.BytesField(Entry.KeyFieldNumber, reader.EntryKey);
                if (!reader.EntryValue.IsEmpty)
                    writer.BytesField(Entry.ValueFieldNumber, reader.EntryValue);
                writer.EtagField(Entry.EtagFieldNumber, reader.EntryEtag);
            }
            writer.VarintField(OperationResult.MoreFieldNumber, reader.More ? 1u : 0u);
        }
    }

    // A copy of the reader goes through the entries.
    private static int SizeOf(OperationResultReader reader)
    {
        var size = (reader.Etag == Etag.None ? 0 : WireWriter.BytesFieldSize(WireWriter.EtagBytes))
            + (reader.Existed is null ? 0 : WireWriter.OptionalVarintFieldSize(1))
            + (reader.Number is { } number ? WireWriter.OptionalVarintFieldSize(WireWriter.Fold(number)) : 0)
            + WireWriter.VarintFieldSize(reader.More ? 1u : 0u);
        while (reader.MoveToEntry())
            size += WireWriter.BytesFieldSize(EntrySize(reader));
        return size;
    }

    private static int EntrySize(in OperationResultReader reader) =>
        WireWriter.BytesFieldSize(reader.EntryKey.Length)
            + (reader.EntryValue.IsEmpty ? 0 : WireWriter.BytesFieldSize(reader.EntryValue.Length)) + WireWriter.BytesFieldSize(WireWriter.EtagBytes);
}
