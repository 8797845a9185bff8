namespace KvCluster.Cli.Files;

/// <summary>
/// The differences found, by key. If a key occurs more than once in the file, its last line decides, as it does when the file is loaded. Lines are added in the
/// order of the file. One thread.
/// </summary>
internal sealed class Differences
{
    // Enough to see what is wrong. The file of another cluster would fill the memory.
    private const int KeysMax = 100_000;

    private readonly Dictionary<ReadOnlyMemory<byte>, ComparedRecord> _byKey = new(new KeyEquality());

    public int Count => _byKey.Count;

    public bool IsFull => Count >= KeysMax;

    public int CountOf(Comparison comparison) => _byKey.Values.Count(one => one.Comparison == comparison);

    /// <summary>The first differences, by line.</summary>
    public IEnumerable<ComparedRecord> First(int count) => _byKey.Values.OrderBy(one => one.Record.Line).Take(count);

    public void Add(ComparedRecord compared)
    {
        if (compared.Comparison == Comparison.Equal)
            _byKey.Remove(compared.Record.Key);
        else
            _byKey[compared.Record.Key] = compared;
    }

    private sealed class KeyEquality : IEqualityComparer<ReadOnlyMemory<byte>>
    {
        public bool Equals(ReadOnlyMemory<byte> x, ReadOnlyMemory<byte> y) => x.Span.SequenceEqual(y.Span);

        public int GetHashCode(ReadOnlyMemory<byte> key)
        {
            var hash = new HashCode();
            hash.AddBytes(key.Span);
            return hash.ToHashCode();
        }
    }
}

/// <summary>How a line of the file compares with the cluster's answer.</summary>
internal enum Comparison
{
    Equal,
    Missing,
    Different,
}

/// <summary>A line of the file, and how it compares with the cluster.</summary>
internal readonly record struct ComparedRecord(FileRecord Record, Comparison Comparison);
