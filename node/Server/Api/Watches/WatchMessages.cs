using KvCluster.Node.Watching;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Node.Api.Watches;

/// <summary>Encodes the messages of a watch. Their size is bounded by <see cref="WatchLimits.MessageBytes"/>. Pure; any thread.</summary>
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
        Append(message, runs, query);
        return message;
    }

    /// <summary>How many bytes <see cref="Encode"/> makes of this.</summary>
    /// <inheritdoc cref="Encode"/>
    public static int SizeOf(LineageShard shard, List<WatchRun> runs, WatchQuery query)
    {
        var bytes = (long)WireWriter.BytesFieldSize(WireWriter.PositionSize(shard));
        foreach (var run in runs)
        {
            foreach (ref readonly var happened in run.Batch.Events.AsSpan(run.First, run.Count))
                bytes += WireWriter.BytesFieldSize(SizeOf(happened, query));
        }
        return checked((int)bytes);
    }

    /// <summary>Encodes changes that were made to keys whose entries were sent before.</summary>
    /// <param name="shard">The shard.</param>
    /// <param name="sent">How far the entries have come with these changes.</param>
    /// <param name="runs">The events.</param>
    /// <param name="query">What is left out.</param>
    public static MessageBytes EncodeInitial(LineageShard shard, in EntriesSent sent, List<WatchRun> runs, WatchQuery query)
    {
        var message = MessageBytes.Rent();
        Append(message, runs, query);
        MarkInitial(message, shard, sent);
        return message;
    }

    /// <summary>Says that the next message of a stream has so many bytes.</summary>
    public static MessageBytes Announce(int bytes)
    {
        var message = MessageBytes.Rent();
        new WireWriter(message.Append(WireWriter.VarintFieldSize((ulong)bytes))).VarintField(WatchResponse.NextBytesFieldNumber, (ulong)bytes);
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

    /// <summary>
    /// Marks a message as one of the entries that the watch begins with, and says how far they have come, or completes them with their position.
    /// </summary>
    public static void MarkInitial(MessageBytes message, LineageShard shard, in EntriesSent sent)
    {
        var through = sent.Through.Span;
        var position = WireWriter.PositionSize(shard);
        if (sent.IsComplete)
        {
            var last = new WireWriter(message.Append(4 + WireWriter.BytesFieldSize(position)));
            last.PositionField(WatchResponse.PositionFieldNumber, shard, sent.Etag);
            last.VarintField(WatchResponse.InitialFieldNumber, 1);
            last.VarintField(WatchResponse.InitialCompleteFieldNumber, 1);
            return;
        }
        var progress = WireWriter.BytesFieldSize(position) + SizeOf(through);
        var writer = new WireWriter(message.Append(2 + WireWriter.BytesFieldSize(progress)));
        writer.VarintField(WatchResponse.InitialFieldNumber, 1);
        writer.BytesHeader(WatchResponse.ProgressFieldNumber, progress);
        writer.PositionField(InitialProgress.PositionFieldNumber, shard, sent.Etag);
        Write(ref writer, InitialProgress.ThroughFieldNumber, through);
    }

    private static void Append(MessageBytes message, List<WatchRun> runs, WatchQuery query)
    {
        foreach (var run in runs)
        {
            foreach (ref readonly var happened in run.Batch.Events.AsSpan(run.First, run.Count))
                Append(message, happened, query);
        }
    }

    // Without the tag and length.
    private static int SizeOf(in WatchEvent happened, WatchQuery query)
    {
        var isKnown = query.WithPrevious && happened.IsPreviousKnown;
        return WireWriter.VarintFieldSize((ulong)happened.Kind)
            + WireWriter.VarintFieldSize((ulong)happened.Reason) + SizeOf(happened.Key.Span) + SizeOf(happened.End.Span)
            + WireWriter.BytesFieldSize(
                WireWriter.EtagBytes) + SizeOf(query.KeysOnly ? default : happened.Value.Span) + SizeOf(happened.Member.Span) + (isKnown ? 2 : 0)
            + (isKnown && happened.PreviousEtag != Etag.None ? WireWriter.BytesFieldSize(WireWriter.EtagBytes) + SizeOf(happened.PreviousValue.Span) : 0);
    }

    /// <summary>Appends an event.</summary>
    public static void Append(MessageBytes message, in WatchEvent happened, WatchQuery query)
    {
        var value = query.KeysOnly ? default : happened.Value.Span;
        var isKnown = query.WithPrevious && happened.IsPreviousKnown;
        var isReplaced = isKnown && happened.PreviousEtag != Etag.None;
        var bytes = SizeOf(happened, query);
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

    /// <summary>The bytes of an entry, as an event of a message.</summary>
    public static int SizeOfEntry(ReadOnlySpan<byte> key, ReadOnlySpan<byte> value) => WireWriter.BytesFieldSize(
        (2 * WireWriter.VarintFieldSize(1)) + SizeOf(key) + WireWriter.BytesFieldSize(WireWriter.EtagBytes) + SizeOf(value));

    private static int SizeOf(ReadOnlySpan<byte> bytes) => bytes.IsEmpty ? 0 : WireWriter.BytesFieldSize(bytes.Length);

    private static void Write(ref WireWriter writer, int field, ReadOnlySpan<byte> bytes)
    {
        if (!bytes.IsEmpty)
            writer.BytesField(field, bytes);
    }
}
