// Headers and trailers of a call, in both directions. Not thread-safe. A client's metadata may be shared by calls that only
// read it.
using System.Buffers;
using System.Collections;
using System.Text;

namespace Grpc.Core;

/// <summary>
/// Ordered metadata entries. Keys are lower-case; a key that ends in <c>-bin</c> has bytes, every other one printable ASCII
/// text.
/// </summary>
internal sealed class Metadata : IReadOnlyList<Metadata.Entry>
{
    /// <summary>The end of the key of an entry whose value is bytes.</summary>
    public const string BinaryHeaderSuffix = "-bin";

    /// <summary>No entries; cannot be added to.</summary>
    public static readonly Metadata Empty = new(isReadOnly: true);

    private static readonly SearchValues<char> KeyCharacters = SearchValues.Create("abcdefghijklmnopqrstuvwxyz0123456789_-.");

    private readonly bool _isReadOnly;
    private readonly List<Entry> _entries = [];

    public Metadata()
    {
    }

    private Metadata(bool isReadOnly) => _isReadOnly = isReadOnly;

    public int Count => _entries.Count;

    public Entry this[int index] => _entries[index];

    public void Add(string key, string value) => Add(new Entry(key, value));

    public void Add(string key, byte[] valueBytes) => Add(new Entry(key, valueBytes));

    /// <exception cref="InvalidOperationException">This is <see cref="Empty"/>.</exception>
    public void Add(Entry entry)
    {
        if (_isReadOnly)
            throw new InvalidOperationException("Metadata.Empty is shared and cannot be added to.");
        _entries.Add(entry);
    }

    /// <summary>The last entry with a key, as its value replaces earlier ones; null when there is none.</summary>
    public Entry? Get(string key)
    {
        for (var i = _entries.Count - 1; i >= 0; i--)
        {
            if (_entries[i].Key.Equals(key, StringComparison.OrdinalIgnoreCase))
                return _entries[i];
        }
        return null;
    }

    /// <summary>The text of the last entry with a key; null when there is none.</summary>
    public string? GetValue(string key) => Get(key)?.Value;

    /// <summary>The bytes of the last entry with a key; null when there is none.</summary>
    public byte[]? GetValueBytes(string key) => Get(key)?.ValueBytes;

    /// <summary>All entries with a key, in order.</summary>
    public IEnumerable<Entry> GetAll(string key) => _entries.Where(entry => entry.Key.Equals(key, StringComparison.OrdinalIgnoreCase));

    /// <inheritdoc/>
    public IEnumerator<Entry> GetEnumerator() => _entries.GetEnumerator();

    IEnumerator IEnumerable.GetEnumerator() => GetEnumerator();

    /// <summary>One key with its value.</summary>
    public sealed class Entry
    {
        private readonly string? _value;
        private readonly byte[]? _valueBytes;

        /// <exception cref="ArgumentException">The key has a character that metadata cannot have, or is a binary one.</exception>
        public Entry(string key, string value)
        {
            Key = Normalize(key);
            if (IsBinary)
                throw new ArgumentException($"The key '{key}' takes bytes, because it ends in {BinaryHeaderSuffix}.", nameof(key));
            if (value.AsSpan().ContainsAnyExceptInRange(' ', '~'))
                throw new ArgumentException($"The value of '{key}' is not printable ASCII; use a key that ends in {BinaryHeaderSuffix}.", nameof(value));
            _value = value;
        }

        /// <exception cref="ArgumentException">The key has a character that metadata cannot have, or is not a binary one.</exception>
        public Entry(string key, byte[] valueBytes)
        {
            Key = Normalize(key);
            if (!IsBinary)
                throw new ArgumentException($"The key '{key}' takes text; only keys that end in {BinaryHeaderSuffix} have bytes.", nameof(key));
            _valueBytes = valueBytes;
        }

        private Entry(string key, string? value, byte[]? valueBytes)
        {
            Key = key.ToLowerInvariant();
            _value = value;
            _valueBytes = valueBytes;
        }

        public string Key { get; }

        public bool IsBinary => Key.EndsWith(BinaryHeaderSuffix, StringComparison.Ordinal);

        /// <exception cref="InvalidOperationException">The entry is binary.</exception>
        public string Value => _value ?? throw new InvalidOperationException($"'{Key}' has bytes, not text.");

        /// <summary>The bytes; of a text entry its ASCII.</summary>
        public byte[] ValueBytes => _valueBytes ?? Encoding.ASCII.GetBytes(_value!);

        /// <summary>An entry as a peer sent it: taken as it is.</summary>
        internal static Entry Received(string key, string value) => new(key, value, null);

        /// <inheritdoc cref="Received(string, string)"/>
        internal static Entry Received(string key, byte[] valueBytes) => new(key, null, valueBytes);

        /// <inheritdoc/>
        public override string ToString() => IsBinary ? $"[{Key}: {_valueBytes!.Length} bytes]" : $"[{Key}: {_value}]";

        private static string Normalize(string key)
        {
            var lower = key.ToLowerInvariant();
            if (lower.Length == 0 || lower.AsSpan().ContainsAnyExcept(KeyCharacters))
                throw new ArgumentException($"'{key}' is not a metadata key: letters, digits, '_', '-' and '.'.", nameof(key));
            return lower;
        }
    }
}
