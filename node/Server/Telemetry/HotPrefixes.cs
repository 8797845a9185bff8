// The prefixes of keys that callers use most, estimated from a sample of keys by the space-saving method (Metwally, Agrawal, El Abbadi 2005) with a fixed
// number of counters. Called on the API's threads. A call that is not sampled only decrements a thread-local counter.
using System.Diagnostics.CodeAnalysis;
using Google.Protobuf;
using KvCluster.V1;

namespace KvCluster.Node.Telemetry;

/// <summary>Estimates how often prefixes are used. Thread-safe.</summary>
internal sealed class HotPrefixes(TimeProvider clock)
{
    /// <summary>One call in this many is sampled, on average.</summary>
    public const int CallsPerSample = 64;

    /// <summary>Maximum number of prefixes reported, of those counted.</summary>
    public const int ShownMax = 20;

    /// <summary>A prefix with more than 1/128 of the samples always has a counter.</summary>
    private const int CountersMax = 128;

    /// <summary>Longer prefixes are cut, because a prefix shared by many keys is short.</summary>
    private const int PrefixBytesMax = 64;

    /// <summary>Prefix length for a key without a separator.</summary>
    private const int PlainPrefixBytes = 8;

    /// <summary>Interval at which all counts are halved, so that earlier hot prefixes disappear within a minute.</summary>
    private static readonly TimeSpan HalfLife = TimeSpan.FromSeconds(10);

    [ThreadStatic]
    private static int _callsToNext;

    private readonly Lock _gate = new();
    private readonly Dictionary<byte[], Counter> _counters = new(ByteComparer.Instance);
    private long _samples;
    private long _halvedAt = clock.GetTimestamp();

    /// <summary>A caller used this key. Never waits.</summary>
    public void Saw(ReadOnlySpan<byte> key)
    {
        if (--_callsToNext > 0)
            return;
        // Random, so that calls with a regular pattern are all sampled.
        _callsToNext = Random.Shared.Next(1, 2 * CallsPerSample);
        Count(key);
    }

    /// <summary>Counts a sampled key. Skipped while another thread counts or reads, because a lost sample does no harm.</summary>
    public void Count(ReadOnlySpan<byte> key)
    {
        if (!_gate.TryEnter())
            return;
        try
        {
            FadeLocked();
            _samples++;
            var (shorter, longer) = PrefixesOf(key);
            CountLocked(key[..longer]);
            if (shorter != longer)
                CountLocked(key[..shorter]);
        }
        finally
        {
            _gate.Exit();
        }
    }

    /// <summary>The prefixes, hottest first, and the number of samples.</summary>
    public (IReadOnlyList<HotPrefix> Prefixes, ulong Samples) Read()
    {
        lock (_gate)
        {
            FadeLocked();
            var hottest = _counters.Select(static counter => (Prefix: counter.Key, Least: counter.Value.Count - counter.Value.Error))
                .Where(static counter => counter.Least > 0)
                .OrderByDescending(static counter => counter.Least).ThenBy(static counter => counter.Prefix.Length).Take(ShownMax);
            return (
                [.. hottest.Select(static counter => new HotPrefix { Prefix = ByteString.CopyFrom(counter.Prefix), Samples = (ulong)counter.Least })],
                (ulong)_samples);
        }
    }

    // Prefixes up to the first and up to the last separator: "user:123:name" has "user:" and "user:123:".
    private static (int Shorter, int Longer) PrefixesOf(ReadOnlySpan<byte> key)
    {
        var head = key[..Math.Min(key.Length, PrefixBytesMax)];
        var first = head.IndexOfAny("/:|#"u8);
        // For a path that begins with a separator, the next one counts as the first.
        if (first == 0 && head[1..].IndexOfAny("/:|#"u8) is >= 0 and var next)
            first = next + 1;
        if (first < 0)
            return (Math.Min(key.Length, PlainPrefixBytes), Math.Min(key.Length, PlainPrefixBytes));
        return (first + 1, head.LastIndexOfAny("/:|#"u8) + 1);
    }

    private void CountLocked(ReadOnlySpan<byte> prefix)
    {
        Invariant.CheckHeld(_gate);
        var counters = _counters.GetAlternateLookup<ReadOnlySpan<byte>>();
        if (counters.TryGetValue(prefix, out var counter))
        {
            counter.Count++;
            return;
        }
        if (_counters.Count < CountersMax)
        {
            counters[prefix] = new Counter { Count = 1 };
            return;
        }
        // The new prefix takes over the counter with the least count. That count is the possible error of its own count.
        var least = _counters.MinBy(static held => held.Value.Count);
        _counters.Remove(least.Key);
        counters[prefix] = new Counter { Count = least.Value.Count + 1, Error = least.Value.Count };
    }

    private void FadeLocked()
    {
        Invariant.CheckHeld(_gate);
        var halvings = (int)Math.Min(63, clock.GetElapsedTime(_halvedAt) / HalfLife);
        if (halvings == 0)
            return;
        _halvedAt = clock.GetTimestamp();
        _samples >>= halvings;
        foreach (var (prefix, counter) in _counters)
        {
            counter.Count >>= halvings;
            counter.Error >>= halvings;
            if (counter.Count == 0)
                _counters.Remove(prefix);
        }
    }

    private sealed class Counter
    {
        public long Count { get; set; }

        /// <summary>Upper bound of the part of the count that may belong to other prefixes.</summary>
        public long Error { get; set; }
    }

    private sealed class ByteComparer : IEqualityComparer<byte[]>, IAlternateEqualityComparer<ReadOnlySpan<byte>, byte[]>
    {
        public static readonly ByteComparer Instance = new();

        public bool Equals(byte[]? one, byte[]? other) => one.AsSpan().SequenceEqual(other);

        public bool Equals(ReadOnlySpan<byte> one, byte[] other) => one.SequenceEqual(other);

        public int GetHashCode([DisallowNull] byte[] bytes) => GetHashCode(bytes.AsSpan());

        public int GetHashCode(ReadOnlySpan<byte> bytes)
        {
            var hash = default(HashCode);
            hash.AddBytes(bytes);
            return hash.ToHashCode();
        }

        public byte[] Create(ReadOnlySpan<byte> bytes) => bytes.ToArray();
    }
}
