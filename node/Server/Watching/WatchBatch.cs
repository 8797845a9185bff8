using KvCluster.Storage.Encoding;
using KvCluster.Storage.Journal;
using KvCluster.Storage.Transactions;
using KvCluster.V1;

namespace KvCluster.Node.Watching;

/// <summary>
/// The events of one committed record, decoded once for all watchers of its shard. Immutable after <see cref="PreviousValues"/> has filled it in; any thread.
/// </summary>
internal sealed class WatchBatch
{
    /// <summary>What an event takes besides its bytes, roughly.</summary>
    private const int EventBytes = 192;

    private WatchBatch(Etag etag, WatchEvent[] events, long bytes) => (Etag, Events, Bytes) = (etag, events, bytes);

    /// <summary>The record.</summary>
    public Etag Etag { get; }

    /// <summary>Its events, in order.</summary>
    public WatchEvent[] Events { get; }

    /// <summary>The memory that it takes, in bytes.</summary>
    public long Bytes { get; set; }

    /// <summary>Its place among the batches of its shard.</summary>
    public long Number { get; set; }

    /// <summary>Decodes the body of a record that was applied here.</summary>
    /// <exception cref="UnreadableRecordException">It cannot be read, so it cannot have been applied, which is a bug.</exception>
    public static WatchBatch Decode(ReadOnlyMemory<byte> body)
    {
        var epoch = RecordBody.Epoch(body.Span);
        var last = new Etag(epoch, RecordBody.LastChange(body.Span));
        var count = RecordBody.OperationCount(body.Span);
        if (count == 0)
            return new WatchBatch(last, [], 0);
        var operations = OperationsOf(body);
        var events = new List<WatchEvent>(count);
        var change = new Etag(epoch, RecordBody.FirstChange(body.Span));
        var reader = new OperationReader(operations.Span);
        while (reader.MoveNext())
        {
            if (reader.Code == OperationCode.Results)
                continue;
            if (TryDecode(reader, operations, change) is { } found)
                events.Add(found);
            change++;
        }
        return new WatchBatch(last, [.. events], operations.Length + ((long)events.Count * EventBytes));
    }

    // The bytes of the record stay as they are in memory. Those of a compressed one are copied.
    private static ReadOnlyMemory<byte> OperationsOf(ReadOnlyMemory<byte> body)
    {
        if ((RecordBody.Flags(body.Span) & RecordFlags.Lz4) == 0)
            return body[RecordBody.Payload(body.Span)];
        using var payload = new RecordPayload(body.Span);
        return payload.Operations.ToArray();
    }

    private static WatchEvent? TryDecode(in OperationReader reader, ReadOnlyMemory<byte> operations, Etag etag) => reader.Code switch
    {
        OperationCode.Put or OperationCode.PutNumbered => Of(EventKind.Put, reader, operations, etag) with { Value = In(operations, reader.Value) },
        OperationCode.Delete => Of(EventKind.Delete, reader, operations, etag),
        OperationCode.Expire => Of(EventKind.Delete, reader, operations, etag) with { Reason = EventReason.Expired },
        OperationCode.DeleteOwned => Of(EventKind.Delete, reader, operations, etag) with { Reason = EventReason.SessionEnded },
        OperationCode.Touch => Of(EventKind.Touch, reader, operations, etag),
        OperationCode.DeleteRange => Of(EventKind.DeleteRange, reader, operations, etag) with { End = In(operations, reader.KeyEnd) },
        OperationCode.SetAdd => Of(EventKind.SetAdd, reader, operations, etag) with { Member = In(operations, reader.Member) },
        OperationCode.SetRemove => Of(EventKind.SetRemove, reader, operations, etag) with { Member = In(operations, reader.Member) },
        OperationCode.SetDelete => Of(EventKind.SetRemove, reader, operations, etag) with { End = In(operations, reader.Member) },
        _ => null,
    };

    private static WatchEvent Of(EventKind kind, in OperationReader reader, ReadOnlyMemory<byte> operations, Etag etag) =>
        new() { Kind = kind, Reason = EventReason.User, Etag = etag, Key = In(operations, reader.Key) };

    private static ReadOnlyMemory<byte> In(ReadOnlyMemory<byte> operations, ReadOnlySpan<byte> part) =>
        !part.IsEmpty && operations.Span.Overlaps(part, out var offset) ? operations.Slice(offset, part.Length) : default;
}

/// <summary>Events of a batch that follow each other and are for the same watcher.</summary>
/// <param name="Batch">The batch.</param>
/// <param name="First">The index of the first one.</param>
/// <param name="Count">How many there are.</param>
internal readonly record struct WatchRun(WatchBatch Batch, int First, int Count);
