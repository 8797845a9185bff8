using System.Runtime.InteropServices;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.V1;

namespace KvCluster.Node.Watching;

/// <summary>
/// The state of the keys before the next record that a shard's pump will decode: a snapshot, and what the records decoded since have changed. It tells which
/// value a change has replaced, as long as the snapshot is recent; otherwise that is unknown. Used by the pump of <see cref="WatchHub"/>, one step at a time.
/// </summary>
internal sealed class PreviousValues : IDisposable
{
    /// <summary>Bytes of previous values in one batch. What is beyond is not known to watchers.</summary>
    private const int BatchBytesMax = 8 << 20;

    /// <summary>Keys changed since the snapshot. There are so many only if the pump is far behind.</summary>
    private const int ChangesMax = 64 << 10;

    /// <summary>
    /// Bytes of the keys and values changed since the snapshot. Values are parts of records, whose memory stays while they are kept: 65,536 of them once held
    /// half a gigabyte that nobody counted.
    /// </summary>
    private const long ChangesBytesMax = 8 << 20;

    /// <summary>Events whose leaves the disk is asked for at once.</summary>
    private const int EventsAhead = 256;

    /// <summary>Ranges removed since the snapshot. Each is compared with every key.</summary>
    private const int RangesMax = 256;

    private readonly Dictionary<KeyText, (Etag Etag, ReadOnlyMemory<byte> Value)> _changed = [];
    private readonly List<WatchedRange> _removed = [];
    private ReadSnapshot? _snapshot;
    private long _changedBytes;

    /// <summary>When the snapshot was opened, as a timestamp of the hub's clock; null without one.</summary>
    public long? OpenedTimestamp { get; private set; }

    /// <summary>The snapshot has exactly the records decoded so far. It is owned from here on.</summary>
    public void Adopt(ReadSnapshot snapshot, long timestamp)
    {
        Dispose();
        (_snapshot, OpenedTimestamp) = (snapshot, timestamp);
    }

    /// <summary>Fills in what the events of a batch have replaced, and advances behind it.</summary>
    /// <param name="batch">The batch, which follows those before.</param>
    /// <param name="isWanted">For each event whether a watcher wants to know; null: none does.</param>
    public void Fill(WatchBatch batch, bool[]? isWanted)
    {
        if (_snapshot is not { } snapshot)
            return;
        if (snapshot.IsTooOld || _changed.Count + batch.Events.Length > ChangesMax || _changedBytes > ChangesBytesMax || _removed.Count > RangesMax)
        {
            Dispose();
            return;
        }
        var left = (long)BatchBytesMax;
        for (var index = 0; index < batch.Events.Length; index++)
        {
            ref var changed = ref batch.Events[index];
            if (isWanted is not null && index % EventsAhead == 0 && !TryReadAhead(batch.Events.AsSpan(index), isWanted.AsSpan(index), snapshot))
                return;
            if (isWanted is not null && isWanted[index] && changed.ReplacesValue && !TryFill(ref changed, snapshot, ref left))
                return;
            Apply(changed);
        }
        batch.Bytes += BatchBytesMax - left;
    }

    /// <summary>Forgets the snapshot; what was replaced is unknown from here on.</summary>
    public void Dispose()
    {
        _snapshot?.Dispose();
        (_snapshot, OpenedTimestamp, _changedBytes) = (null, null, 0);
        _changed.Clear();
        _removed.Clear();
    }

    // Has the disk begin with all leaves that are not in memory, instead of one after the other. False if the snapshot cannot be read.
    private bool TryReadAhead(ReadOnlySpan<WatchEvent> events, ReadOnlySpan<bool> isWanted, in ReadSnapshot snapshot)
    {
        try
        {
            for (var index = 0; events.Length > 1 && index < Math.Min(EventsAhead, events.Length); index++)
            {
                if (isWanted[index] && events[index].ReplacesValue && !_changed.ContainsKey(new KeyText(events[index].Key)))
                    snapshot.BeginRead(TreeId.Kv, events[index].Key.Span);
            }
            return true;
        }
        catch (CorruptStoreException)
        {
            Dispose();
            return false;
        }
    }

    // False if the snapshot cannot be read.
    private bool TryFill(ref WatchEvent changed, ReadSnapshot snapshot, ref long left)
    {
        if (_changed.TryGetValue(new KeyText(changed.Key), out var known))
        {
            SetPrevious(ref changed, known.Etag, known.Value, copies: false, ref left);
            return true;
        }
        foreach (var range in CollectionsMarshal.AsSpan(_removed))
        {
            if (range.Contains(changed.Key.Span))
            {
                changed.IsPreviousKnown = true;
                return true;
            }
        }
        try
        {
            if (!snapshot.TryGet(TreeId.Kv, changed.Key.Span, out var stored))
            {
                changed.IsPreviousKnown = true;
                return true;
            }
            var value = KvValue.Read(stored, out var etag);
            if (value.Length <= left)
                SetPrevious(ref changed, etag, value.ToArray(), copies: true, ref left);
            return true;
        }
        catch (CorruptStoreException)
        {
            // The code that found the damage has told the store, which stops.
            Dispose();
            return false;
        }
    }

    private static void SetPrevious(ref WatchEvent changed, Etag etag, ReadOnlyMemory<byte> value, bool copies, ref long left)
    {
        (changed.IsPreviousKnown, changed.PreviousEtag, changed.PreviousValue) = (true, etag, value);
        left -= copies ? value.Length : 0;
    }

    private void Apply(in WatchEvent changed)
    {
        switch (changed.Kind)
        {
            case EventKind.Put:
                Set(changed.Key, changed.Etag, changed.Value);
                break;
            case EventKind.Delete:
                Set(changed.Key, Etag.None, default);
                break;
            case EventKind.DeleteRange:
                var range = new WatchedRange(changed.Key, changed.End);
                foreach (var key in _changed.Keys.Where(key => range.Contains(key.Bytes.Span)).ToArray())
                {
                    _changed.Remove(key, out var gone);
                    _changedBytes -= key.Bytes.Length + gone.Value.Length;
                }
                _removed.Add(range);
                break;
            default:
                break;
        }
    }

    private void Set(ReadOnlyMemory<byte> key, Etag etag, ReadOnlyMemory<byte> value)
    {
        ref var known = ref CollectionsMarshal.GetValueRefOrAddDefault(_changed, new KeyText(key), out var exists);
        _changedBytes += value.Length + (exists ? -known.Value.Length : key.Length);
        known = (etag, value);
    }

    /// <summary>A key, compared by content.</summary>
    private readonly struct KeyText(ReadOnlyMemory<byte> bytes) : IEquatable<KeyText>
    {
        public ReadOnlyMemory<byte> Bytes => bytes;

        public bool Equals(KeyText other) => bytes.Span.SequenceEqual(other.Bytes.Span);

        public override bool Equals(object? obj) => obj is KeyText other && Equals(other);

        public override int GetHashCode()
        {
            var hash = default(HashCode);
            hash.AddBytes(bytes.Span);
            return hash.ToHashCode();
        }
    }
}
