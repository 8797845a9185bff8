using Google.Protobuf;
using KvCluster.V1;
using KvCluster.Wire;

namespace KvCluster.Client.Transport;

/// <summary>The progress of a scan over several shards, kept as the request for the rest.</summary>
internal sealed class ScanPosition(ScanRequest request)
{
    private ByteString? _next;

    // The snapshot of the last stream, and where it may be kept.
    private ByteString _snapshot = ByteString.Empty;
    private string? _snapshotAddress;

    /// <summary>The request for what is left, in the shard that <see cref="FindIn"/> returns and those after it.</summary>
    private ScanRequest Rest { get; } = request.Clone();

    /// <summary>Whether a page of the present shard was received.</summary>
    public bool HasBegunShard { get; private set; }

    /// <summary>Whether nothing is left.</summary>
    public bool Done { get; private set; }

    /// <summary>Whether a node may keep the snapshot of the pages received from the present shard.</summary>
    public bool IsKeptAt(string address) => !_snapshot.IsEmpty && _snapshotAddress == address;

    /// <summary>The request for what is left, from the snapshot that the node may keep.</summary>
    public ScanRequest RestAt(string address)
    {
        Rest.Snapshot = IsKeptAt(address) ? _snapshot : ByteString.Empty;
        return Rest;
    }

    /// <summary>The snapshot is not kept any more.</summary>
    public void ForgetSnapshot() => _snapshot = ByteString.Empty;

    /// <summary>Advances behind a page that was received from a node.</summary>
    public void Advance(StreamMessage<ScanPage> page, string address)
    {
        HasBegunShard = true;
        var head = page.Head;
        if (!head.Snapshot.IsEmpty)
            (_snapshot, _snapshotAddress) = (head.Snapshot, address);
        _next = head.HasNextStart ? head.NextStart : null;
        if (Rest.Read?.Mode == ReadMode.Session && head.Position is { } position)
            See(position);
        if (page.Count == 0)
            return;
        GoBehind(page);
        Done = request.BytesMax > 0 && Rest.BytesMax == 0;
        if (Rest.Limit == 0)
            return;
        Rest.Limit -= Math.Min(Rest.Limit, (ulong)page.Count);
        // A limit of 0 would mean all.
        Done |= Rest.Limit == 0;
    }

    // Continues behind the last key, with what is left of the bytes: 0 if there is no limit, or nothing is left.
    private void GoBehind(StreamMessage<ScanPage> page)
    {
        for (var part = 0; part < page.Parts; part++)
        {
            ReadOnlySpan<byte> key = default;
            for (var entries = new WireReader(page.PartOf(part)); entries.ReadField() != 0;)
            {
                entries.ReadEntry(out key, out var value);
                Rest.BytesMax -= Math.Min(Rest.BytesMax, (ulong)(key.Length + value.Length));
            }
            Rest.ResumeAfter = ByteString.CopyFrom(key);
        }
    }

    // Another replica must not continue from a state older than that of the pages received.
    private void See(Position position)
    {
        var seen = Rest.Read.Seen;
        for (var index = seen.Count - 1; index >= 0; index--)
        {
            if (seen[index].ShardId == position.ShardId)
                seen.RemoveAt(index);
        }
        seen.Add(position);
    }

    /// <summary>Advances when the shard's stream ended without an error: the range continues in the next shard, or the scan is complete.</summary>
    public void EndStream()
    {
        if (_next is null)
        {
            Done = true;
            return;
        }
        Rest.ResumeAfter = ByteString.Empty;
        HasBegunShard = false;
        ForgetSnapshot();
        if (Rest.Reverse)
            Rest.End = _next;
        else
            Rest.Start = _next;
        _next = null;
    }

    /// <summary>The shard in which the rest begins.</summary>
    public ShardRoute? FindIn(Routing.ShardMap map) => Rest.Reverse ? map.FindBefore(UpperEnd()) : map.Find(LowerStart());

    private ReadOnlySpan<byte> LowerStart() => Greater(Greater(Rest.Start.Span, Rest.Prefix.Span), Rest.ResumeAfter.Span);

    private ReadOnlySpan<byte> UpperEnd() => LesserEnd(LesserEnd(Rest.End.Span, KeyBounds.EndOfPrefix(Rest.Prefix.Span)), Rest.ResumeAfter.Span);

    private static ReadOnlySpan<byte> Greater(ReadOnlySpan<byte> left, ReadOnlySpan<byte> right) => left.SequenceCompareTo(right) >= 0 ? left : right;

    // Empty means no end.
    private static ReadOnlySpan<byte> LesserEnd(ReadOnlySpan<byte> left, ReadOnlySpan<byte> right) =>
        left.IsEmpty || (!right.IsEmpty && right.SequenceCompareTo(left) < 0) ? right : left;
}
