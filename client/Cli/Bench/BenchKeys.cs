using System.Globalization;
using System.Text;

namespace KvCluster.Cli.Bench;

/// <summary>
/// The keys of a benchmark: bench/ and a number of ten digits. The benchmarks beside other systems use them, too. Any thread.
/// </summary>
/// <param name="distribution">Which of them are chosen.</param>
/// <param name="count">How many there are at the beginning.</param>
internal sealed class BenchKeys(KeyDistribution distribution, int count)
{
    private readonly Zipfian? _zipfian = distribution == KeyDistribution.Uniform ? null : new Zipfian(count);
    private long _inserted;

    /// <summary>What all of them begin with.</summary>
    public static ReadOnlyMemory<byte> Prefix { get; } = "bench/"u8.ToArray();

    /// <summary>How many there are with those that are new.</summary>
    public int Count => count + (int)Volatile.Read(ref _inserted);

    /// <summary>A key by its number.</summary>
    public static ReadOnlyMemory<byte> At(long number) =>
        Encoding.UTF8.GetBytes(string.Create(CultureInfo.InvariantCulture, $"bench/{number:D10}"));

    /// <summary>A key that is there, if it was loaded or written before.</summary>
    public ReadOnlyMemory<byte> Choose() => At(distribution switch
    {
        KeyDistribution.Uniform => Random.Shared.Next(count),
        KeyDistribution.Zipfian => Scattered(_zipfian!.NumberOf(Random.Shared.NextDouble())),
        _ => Math.Max(0, count - 1 + Volatile.Read(ref _inserted) - _zipfian!.NumberOf(Random.Shared.NextDouble())),
    });

    /// <summary>A key that nobody has had.</summary>
    public ReadOnlyMemory<byte> New() => At(count - 1 + Interlocked.Increment(ref _inserted));

    // Keys that are often used are not neighbours (FNV-1a of the number, as in YCSB).
    private long Scattered(long number)
    {
        var hash = 0xCBF29CE484222325UL;
        for (var place = 0; place < sizeof(long); place++)
            hash = unchecked((hash ^ (byte)(number >> (8 * place))) * 0x100000001B3UL);
        return (long)(hash % (ulong)count);
    }
}
