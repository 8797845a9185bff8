using System.Buffers;
using System.Buffers.Binary;
using Microsoft.Extensions.Caching.Distributed;

namespace KvCluster.Extensions.Caching;

/// <summary>
/// An entry of the distributed cache as a value in the cluster: a version, 1; the sliding expiry in milliseconds and the moment of the absolute one in
/// milliseconds since 1970, 8 bytes each, big-endian, 0 for none; and the bytes that were set.
/// </summary>
/// <param name="Sliding">How long the entry stays after each read; null: as long as it does without reads.</param>
/// <param name="End">When it ends in any case; null: only by itself.</param>
/// <param name="Payload">What was set.</param>
internal readonly record struct CacheEntry(TimeSpan? Sliding, DateTimeOffset? End, ReadOnlyMemory<byte> Payload)
{
    public const int HeaderBytes = 17;
    private const byte Version = 1;

    /// <summary>That of keys of the cluster.</summary>
    private static readonly TimeSpan LongestLife = TimeSpan.FromDays(36_500);

    private static readonly TimeSpan ShortestLife = TimeSpan.FromMilliseconds(1);

    /// <summary>Reads a value.</summary>
    /// <returns>Null if it is not an entry, or one of a later version.</returns>
    public static CacheEntry? Read(ReadOnlyMemory<byte> value)
    {
        if (value.Length < HeaderBytes || value.Span[0] != Version)
            return null;
        var slidingMs = BinaryPrimitives.ReadInt64BigEndian(value.Span[1..]);
        var endMs = BinaryPrimitives.ReadInt64BigEndian(value.Span[9..]);
        return new CacheEntry(
            slidingMs > 0 ? TimeSpan.FromMilliseconds(slidingMs) : null, endMs != 0 ? DateTimeOffset.FromUnixTimeMilliseconds(endMs) : null,
            value[HeaderBytes..]);
    }

    /// <summary>The expiry that a caller asks for.</summary>
    /// <param name="options">What it asks for.</param>
    /// <param name="slidingDefault">If it asks for none.</param>
    /// <param name="now">The present moment.</param>
    public static CacheEntry Of(DistributedCacheEntryOptions options, TimeSpan slidingDefault, DateTimeOffset now)
    {
        var end = options.AbsoluteExpirationRelativeToNow is { } left ? now + Min(left, LongestLife) : options.AbsoluteExpiration;
        var sliding = options.SlidingExpiration ?? (end is null ? slidingDefault : null);
        return new CacheEntry(sliding is { } given ? Max(Min(given, LongestLife), ShortestLife) : null, end, default);
    }

    /// <summary>
    /// How long the entry's key lives from now on; null if its time is over. With a sliding expiry that is a quarter more. So a read within that quarter need
    /// not prolong it, and the entry never ends earlier than its sliding expiry after a read.
    /// </summary>
    public TimeSpan? LifeFrom(DateTimeOffset now)
    {
        var life = Sliding is { } sliding ? sliding * 1.25 : LongestLife;
        if (End is { } end)
            life = Min(life, end - now);
        return life < ShortestLife ? null : Min(life, LongestLife);
    }

    /// <summary>Whether a read prolongs the life of the entry's key, of which so much is left.</summary>
    /// <param name="left">What is left of it.</param>
    /// <param name="life">What it would have.</param>
    public bool IsProlonged(TimeSpan left, TimeSpan life) =>
        // Near its absolute end an entry would have as much as it has, but for the clocks.
        Sliding is { } sliding && left < sliding && life - left > sliding / 8;

    /// <summary>The value of an entry with this expiry.</summary>
    public byte[] ToValue(in ReadOnlySequence<byte> payload)
    {
        var value = new byte[HeaderBytes + payload.Length];
        value[0] = Version;
        // A sliding expiry of less than a millisecond must not become none.
        BinaryPrimitives.WriteInt64BigEndian(value.AsSpan(1), Sliding is { } sliding ? (long)Math.Ceiling(sliding.TotalMilliseconds) : 0);
        BinaryPrimitives.WriteInt64BigEndian(value.AsSpan(9), End?.ToUnixTimeMilliseconds() ?? 0);
        payload.CopyTo(value.AsSpan(HeaderBytes));
        return value;
    }

    private static TimeSpan Min(TimeSpan left, TimeSpan right) => left < right ? left : right;

    private static TimeSpan Max(TimeSpan left, TimeSpan right) => left > right ? left : right;
}
