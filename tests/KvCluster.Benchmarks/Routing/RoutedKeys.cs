namespace KvCluster.Benchmarks.Routing;

/// <summary>
/// Keys in the order in which they are routed, one after the other in memory, as a caller finds them in the messages that it has just received.
/// </summary>
internal sealed class RoutedKeys
{
    private readonly byte[] _bytes;
    private readonly int[] _offsets;

    /// <param name="keys">The keys in order. They are copied.</param>
    public RoutedKeys(IReadOnlyList<ReadOnlyMemory<byte>> keys)
    {
        _offsets = new int[keys.Count + 1];
        for (var index = 0; index < keys.Count; index++)
            _offsets[index + 1] = checked(_offsets[index] + keys[index].Length);
        _bytes = new byte[_offsets[^1]];
        for (var index = 0; index < keys.Count; index++)
            keys[index].CopyTo(_bytes.AsMemory(_offsets[index]));
    }

    public int Count => _offsets.Length - 1;

    /// <summary>The key at a place in the order.</summary>
    public ReadOnlySpan<byte> this[int index] => _bytes.AsSpan(_offsets[index], _offsets[index + 1] - _offsets[index]);
}
