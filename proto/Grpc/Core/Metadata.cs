// Headers and trailers of a call, in both directions. Not thread-safe. Calls that only read it may share a client's metadata.
using System.Buffers;
using System.Collections;
using System.Text;

namespace Grpc.Core;

/// <summary>
/// Ordered metadata entries. Keys are lower-case. A key that ends in <c>-bin</c> has bytes as its value, every other key printable ASCII text.
/// </summary>
internal sealed class Metadata : IReadOnlyList<Metadata.Entry>
{
    /// <summary>The suffix of the key of an entry whose value is bytes.</summary>
    public const string BinaryHeaderSuffix = "-bin";

    /// <summary>No entries; read-only.</summary>
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

    /// <summary>The last entry with a key, because its value replaces earlier ones; null if there is none.</summary>
    public Entry? Get(string key)
    {
        for (var i = _entries.Count - 1; i >= 0; i--)
        {
            if (_entries[i].Key.Equals(key, StringComparison.OrdinalIgnoreCase))
                return _entries[i];
        }
        return null;
    }

    /// <summary>The text of the last entry with a key; null if there is none.</summary>
    public string? GetValue(string key) => Get(key)?.Value;

    /// <summary>The bytes of the last entry with a key; null if there is none.</summary>
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

        /// <exception cref="ArgumentException">The key has an invalid character, or is the key of a binary entry.</exception>
        public Entry(string key, string value)
        {
            Key = Normalize(key);
            if (IsBinary)
                throw new ArgumentException($"The key '{key}' takes bytes, because it ends in {BinaryHeaderSuffix}.", nameof(key));
            if (value.AsSpan().ContainsAnyExceptInRange(' ', '~'))
                throw new ArgumentException($"The value of '{key}' is not printable ASCII; use a key that ends in {BinaryHeaderSuffix}.", nameof(value));
            _value = value;
        }

        /// <exception cref="ArgumentException">The key has an invalid character, or is not the key of a binary entry.</exception>
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

        /// <summary>The bytes; for a text entry its ASCII bytes.</summary>
        public byte[] ValueBytes => _valueBytes ?? Encoding.ASCII.GetBytes(_value!);

        /// <summary>Creates an entry as a peer sent it, without validation.</summary>
        internal static Entry Received(string key, string value) => new(key, value, null);

        /// <inheritdoc cref="Received(string, string)"/>
        internal static Entry Received(string key, byte[] valueBytes) => new(key, null, valueBytes);

        /// <inheritdoc/>
        public override string ToString() => IsBinary ? $"[{Key}: {_valueBytes!.Length} bytes]" : $"[{Key}: {_value}]";

        private static string Normalize(string key)
        {
            var lower = key.ToLowerInvariant();
            if (lower.Length == 0 || lower.AsSpan().ContainsAnyExcept(KeyCharacters))
                throw new ArgumentException($"'{key}' is not a metadata key, which consists of letters, digits, '_', '-' and '.'.", nameof(key));
            return lower;
        }
    }
}
