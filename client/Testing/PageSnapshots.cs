using System.Buffers.Binary;
using System.Security.Cryptography;
using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>
/// The pages of lists, and the snapshots that are kept between two of them. The token of a page has the number of its snapshot (8 bytes, 0 if the next page
/// begins in another shard), whether the key itself is the bound (1 byte), a checksum of the range (4 bytes), and a key: the last one of the page, or the
/// bound. Any thread.
/// </summary>
internal sealed class PageSnapshots(InMemoryStore store)
{
    private const int BoundAt = sizeof(ulong);
    private const int RangeAt = BoundAt + 1;
    private const int KeyAt = RangeAt + sizeof(int);

    /// <summary>How long a snapshot waits for the next page, as nodes keep them.</summary>
    private static readonly TimeSpan IdleMax = TimeSpan.FromSeconds(10);

    /// <summary>How old it becomes, as nodes keep them.</summary>
    private static readonly TimeSpan AgeMax = TimeSpan.FromMinutes(1);

    private readonly Lock _lock = new();
    private readonly Dictionary<ulong, (ShardView View, TimeSpan Until)> _kept = [];

    /// <summary>Reads a page.</summary>
    /// <exception cref="KvException">It is refused.</exception>
    public KvPage Read(KvList list, string? pageToken)
    {
        store.ThrowIfClosed();
        var token = PageToken.Parse(pageToken);
        var limit = (uint)list.Limit;
        if (limit > KvLimits.ListEntriesMax)
            throw Refusals.BadRequest($"A page has at most {KvLimits.ListEntriesMax} entries.");
        var entriesLeft = limit == 0 ? KvLimits.ListEntriesDefault : (int)limit;
        var bytesLeft = list.BytesMax == 0 ? KvLimits.ListBytesDefault : (long)Math.Min((uint)list.BytesMax, KvLimits.ListBytesMax);
        var bounds = RequestChecks.Range(list.Start, list.End, list.Prefix);
        var checksum = ChecksumOf(list);
        var snapshot = token.IsEmpty ? 0 : Parse(token.Span, checksum);
        if (!token.IsEmpty)
        {
            var key = token[KeyAt..];
            bounds = token.Span[BoundAt] == 1 ? bounds.From(key, list.Reverse) : bounds.Behind(key, list.Reverse);
        }
        var entries = new List<KvEntry>();
        var positions = new List<ShardPosition>();
        while (true)
        {
            var view = ViewOf(ref snapshot, list, bounds);
            positions.Add(view.Position);
            foreach (var key in view.State.Within(bounds, list.Reverse))
            {
                if (entriesLeft == 0 || bytesLeft <= 0)
                {
                    var keptFor = Keep(ref snapshot, view);
                    return PageOf(entries, TokenOf(snapshot, isBound: false, checksum, entries[^1].Key), positions) with { SnapshotKeptFor = keptFor };
                }
                var entry = key.ToEntry(list.KeysOnly, list.WithLife ? store.Now : null);
                entries.Add(entry);
                entriesLeft--;
                bytesLeft -= entry.Key.Length + entry.Value.Length;
            }
            var bound = list.Reverse ? view.Shard.Start : view.Shard.End;
            if (!bounds.GoesOnBeyond(bound.Span, list.Reverse))
                return PageOf(entries, token: [], positions);
            if (entriesLeft == 0 || bytesLeft <= 0)
                return PageOf(entries, TokenOf(0, isBound: true, checksum, bound), positions);
            bounds = bounds.From(bound, list.Reverse);
            snapshot = 0;
        }
    }

    private static KvPage PageOf(List<KvEntry> entries, byte[] token, List<ShardPosition> positions) =>
        new(entries, PageToken.Of(token), positions[^1]) { Positions = positions };

    // The snapshot of the page before, or a new one, of which the number is 0.
    private ShardView ViewOf(ref ulong snapshot, KvList list, KeyBounds bounds)
    {
        if (snapshot != 0)
        {
            lock (_lock)
            {
                if (_kept.TryGetValue(snapshot, out var kept) && store.Now < kept.Until)
                    return kept.View;
            }
            if (!list.NewerSnapshots)
                throw Refusals.SnapshotNotKept();
            snapshot = 0;
        }
        return store.Read(list.Reverse ? store.IndexBefore(bounds.Upper) : store.IndexOf(bounds.Lower));
    }

    // Keeps a snapshot for the next page, a new one under a number, and returns for how long.
    private TimeSpan Keep(ref ulong snapshot, ShardView view)
    {
        if (snapshot == 0)
            snapshot = BitConverter.ToUInt64(RandomNumberGenerator.GetBytes(sizeof(ulong))) | 1;
        var now = store.Now;
        var end = view.Now + AgeMax;
        var until = end < now + IdleMax ? end : now + IdleMax;
        lock (_lock)
        {
            foreach (var old in _kept.Where(kept => kept.Value.Until <= now).Select(static kept => kept.Key).ToList())
                _kept.Remove(old);
            _kept[snapshot] = (view, until);
        }
        return until > now ? until - now : TimeSpan.Zero;
    }

    private static byte[] TokenOf(ulong snapshot, bool isBound, int checksum, KvKey key)
    {
        var token = new byte[KeyAt + key.Length];
        BinaryPrimitives.WriteUInt64BigEndian(token, snapshot);
        token[BoundAt] = isBound ? (byte)1 : (byte)0;
        BinaryPrimitives.WriteInt32BigEndian(token.AsSpan(RangeAt), checksum);
        key.Span.CopyTo(token.AsSpan(KeyAt));
        return token;
    }

    private static ulong Parse(ReadOnlySpan<byte> token, int checksum)
    {
        if (token.Length is <= KeyAt or > KeyAt + KvLimits.KeyBytesMax || token[BoundAt] > 1)
            throw Refusals.BadRequest("The page token is none that came with a page.");
        if (BinaryPrimitives.ReadInt32BigEndian(token[RangeAt..]) != checksum)
            throw Refusals.BadRequest("The page token is of another listing: range, order, and whether values are returned must be the same for each page.");
        return BinaryPrimitives.ReadUInt64BigEndian(token);
    }

    // Of all fields that must be the same for each page.
    private static int ChecksumOf(KvList list) => HashCode.Combine(list.Start, list.End, list.Prefix, list.Reverse, list.KeysOnly);
}
