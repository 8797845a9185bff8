using KvCluster.Node.Watching;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api;

/// <summary>Encodes the messages of a watch. Pure; any thread.</summary>
internal static class WatchMessages
{
    /// <summary>Encodes events with the position that their watcher has with them.</summary>
    /// <param name="shard">The shard.</param>
    /// <param name="position">The position.</param>
    /// <param name="runs">The events; none for a bookmark.</param>
    /// <param name="query">What is left out.</param>
    public static MessageBytes Encode(LineageShard shard, Etag position, List<WatchRun> runs, WatchQuery query)
    {
        var message = Begin(shard, position);
        foreach (var run in runs)
        {
            foreach (ref readonly var happened in run.Batch.Events.AsSpan(run.First, run.Count))
                Append(message, happened, query);
        }
        return message;
    }

    /// <summary>Begins a message: only a position, unless something is appended.</summary>
    public static MessageBytes Begin(LineageShard shard, Etag position)
    {
        var message = MessageBytes.Rent();
        var writer = new WireWriter(message.Append(WireWriter.BytesFieldSize(WireWriter.PositionSize(shard))));
        writer.PositionField(WatchResponse.PositionFieldNumber, shard, position);
        return message;
    }

    /// <summary>Marks a message as one of the entries that the watch begins with.</summary>
    public static void MarkInitial(MessageBytes message) => new WireWriter(message.Append(2)).VarintField(WatchResponse.InitialFieldNumber, 1);

    /// <summary>Appends an event.</summary>
    public static void Append(MessageBytes message, in WatchEvent happened, WatchQuery query)
    {
        var value = query.KeysOnly ? default : happened.Value.Span;
        var isKnown = query.WithPrevious && happened.IsPreviousKnown;
        var isReplaced = isKnown && happened.PreviousEtag != Etag.None;
        var bytes = WireWriter.VarintFieldSize((ulong)happened.Kind) + WireWriter.VarintFieldSize((ulong)happened.Reason) + SizeOf(happened.Key.Span) + SizeOf(happened.End.Span)
            + WireWriter.BytesFieldSize(WireWriter.EtagBytes) + SizeOf(value) + SizeOf(happened.Member.Span) + (isKnown ? 2 : 0)
            + (isReplaced ? WireWriter.BytesFieldSize(WireWriter.EtagBytes) + SizeOf(happened.PreviousValue.Span) : 0);
        var writer = new WireWriter(message.Append(WireWriter.BytesFieldSize(bytes)));
        writer.BytesHeader(WatchResponse.EventsFieldNumber, bytes);
        writer.VarintField(Event.KindFieldNumber, (ulong)happened.Kind);
        writer.VarintField(Event.ReasonFieldNumber, (ulong)happened.Reason);
        Write(ref writer, Event.KeyFieldNumber, happened.Key.Span);
        Write(ref writer, Event.RangeEndFieldNumber, happened.End.Span);
        writer.EtagField(Event.EtagFieldNumber, happened.Etag);
        Write(ref writer, Event.ValueFieldNumber, value);
        Write(ref writer, Event.MemberFieldNumber, happened.Member.Span);
        writer.VarintField(Event.PreviousKnownFieldNumber, isKnown ? 1u : 0);
        if (!isReplaced)
            return;
        writer.EtagField(Event.PreviousEtagFieldNumber, happened.PreviousEtag);
        Write(ref writer, Event.PreviousValueFieldNumber, happened.PreviousValue.Span);
    }

    private static int SizeOf(ReadOnlySpan<byte> bytes) => bytes.IsEmpty ? 0 : WireWriter.BytesFieldSize(bytes.Length);

    private static void Write(ref WireWriter writer, int field, ReadOnlySpan<byte> bytes)
    {
        if (!bytes.IsEmpty)
            writer.BytesField(field, bytes);
    }
}
