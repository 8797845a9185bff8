using System.Globalization;
using Google.Protobuf;

namespace KvCluster.Benchmarks.Cluster;

/// <summary>The keys and values of every cluster workload: 16-byte keys, 20,000 of them drawn from a million, 100-byte values.</summary>
internal sealed class KeySpace
{
    private const int KeyCount = 20_000;
    private const int ValueCount = 64;
    private const int ValueBytes = 100;

    private readonly ByteString[] _keys;
    private readonly ByteString[] _values;

    public KeySpace(int seed)
    {
        var random = new Random(seed);
        _keys = [.. Enumerable.Range(0, KeyCount)
            .Select(_ => ByteString.CopyFromUtf8(string.Create(CultureInfo.InvariantCulture, $"key-{random.Next(1_000_000):D12}")))];
        _values = [.. Enumerable.Range(0, ValueCount).Select(_ =>
        {
            var value = new byte[ValueBytes];
            random.NextBytes(value);
            return ByteString.CopyFrom(value);
        })];
    }

    public IReadOnlyList<ByteString> Keys => _keys;

    public ByteString Key(int number) => _keys[(int)((uint)number % KeyCount)];

    public ByteString Value(int number) => _values[(int)((uint)number % ValueCount)];
}
