using System.Runtime.CompilerServices;
using System.Text.Json;
using System.Text.Json.Serialization.Metadata;

namespace KvCluster.Client;

/// <summary>
/// The keys with a prefix, whose values are of one type and stored as JSON in UTF-8. Its keys are given and returned without the prefix. If both are composite
/// keys, the key in the cluster is one, too: "orders" and 2026, 11 make "orders", 2026, 11. Thread-safe; it has no state of its own.
/// </summary>
/// <typeparam name="T">The type of the values.</typeparam>
public sealed class KvTable<T>
{
    private readonly IKvClient _client;
    private readonly KvKey _prefix;
    private readonly JsonTypeInfo<T> _type;

    /// <summary>A table, which need not exist: it consists of its keys.</summary>
    /// <param name="client">Makes the calls.</param>
    /// <param name="prefix">What all keys of the table begin with, and no others, for example <c>KvKey.Of("orders")</c>.</param>
    /// <param name="type">How values are read and written.</param>
    /// <exception cref="ArgumentException">The prefix is empty: the table would be all keys of the cluster.</exception>
    public KvTable(IKvClient client, KvKey prefix, JsonTypeInfo<T> type)
    {
        ArgumentNullException.ThrowIfNull(client);
        ArgumentNullException.ThrowIfNull(type);
        if (prefix.IsEmpty)
            throw new ArgumentException("A table without a prefix would be all keys of the cluster, so there is none. Choose a prefix.", nameof(prefix));
        (_client, _prefix, _type) = (client, prefix, type);
    }

    /// <summary>Makes the calls.</summary>
    internal IKvClient Client => _client;

    /// <summary>How values are read and written.</summary>
    internal JsonTypeInfo<T> Type => _type;

    /// <summary>The key in the cluster, as a <see cref="KvWrite"/> or a <see cref="KvWatch"/> needs it.</summary>
    /// <param name="key">The key in the table.</param>
    public KvKey KeyOf(KvKey key) => (byte[])[.. _prefix.Span, .. key.Span];

    /// <summary>Returns the value of a key.</summary>
    /// <param name="key">The key in the table.</param>
    /// <param name="options">As in <see cref="KvClient.GetAsync"/>.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="JsonException">The value is not JSON of the type.</exception>
    /// <exception cref="KvException">As of <see cref="KvClient.GetAsync"/>.</exception>
    public ValueTask<GetResult<T>> GetAsync(KvKey key, KvGetOptions? options = null, CancellationToken cancellationToken = default) =>
        _client.GetAsync(KeyOf(key), _type, options, cancellationToken);

    /// <summary>Sets a key.</summary>
    /// <param name="key">The key in the table; with <see cref="KvPutOptions.Sequence"/> the prefix of the new key.</param>
    /// <param name="value">Up to 8 MiB of JSON.</param>
    /// <param name="options">As in <see cref="KvClient.PutAsync"/>.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>The key in the table, its etag, and the change's position.</returns>
    /// <exception cref="NotSupportedException">The type cannot be written as JSON.</exception>
    /// <exception cref="KvException">As of <see cref="KvClient.PutAsync"/>.</exception>
    public async ValueTask<PutResult> PutAsync(KvKey key, T value, KvPutOptions? options = null, CancellationToken cancellationToken = default)
    {
        var put = await _client.PutAsync(KeyOf(key), value, _type, options, cancellationToken).ConfigureAwait(false);
        return put with { Key = InTable(put.Key) };
    }

    /// <summary>Sets a key if a condition holds. That it does not is a result, which says what the key has, and no exception.</summary>
    /// <param name="key">The key in the table; with <see cref="KvPutOptions.Sequence"/> the prefix of the new key.</param>
    /// <param name="value">Up to 8 MiB of JSON.</param>
    /// <param name="options">As in <see cref="KvClient.TryPutAsync"/>.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>The key in the table, its etag, and the change's position. A failed condition has the key in the cluster.</returns>
    /// <exception cref="NotSupportedException">The type cannot be written as JSON.</exception>
    /// <exception cref="KvException">As of <see cref="KvClient.TryPutAsync"/>.</exception>
    public async ValueTask<KvTryResult<PutResult>> TryPutAsync(
        KvKey key, T value, KvPutOptions options, CancellationToken cancellationToken = default)
    {
        var put = await _client.TryPutAsync(KeyOf(key), value, _type, options, cancellationToken).ConfigureAwait(false);
        return put.Succeeded ? new KvTryResult<PutResult>(put.Result with { Key = InTable(put.Result.Key) }) : put;
    }

    /// <summary>Removes a key. It is not an error if the key does not exist.</summary>
    /// <param name="key">The key in the table.</param>
    /// <param name="options">As in <see cref="KvClient.DeleteAsync"/>.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="KvException">As of <see cref="KvClient.DeleteAsync"/>.</exception>
    public ValueTask<DeleteResult> DeleteAsync(KvKey key, KvChangeOptions? options = null, CancellationToken cancellationToken = default) =>
        _client.DeleteAsync(KeyOf(key), options, cancellationToken);

    /// <summary>Removes a key if a condition holds. That it does not is a result, which says what the key has, and no exception.</summary>
    /// <param name="key">The key in the table.</param>
    /// <param name="options">As in <see cref="KvClient.TryDeleteAsync"/>.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <returns>Whether the key existed. A failed condition has the key in the cluster.</returns>
    /// <exception cref="KvException">As of <see cref="KvClient.TryDeleteAsync"/>.</exception>
    public ValueTask<KvTryResult<DeleteResult>> TryDeleteAsync(KvKey key, KvChangeOptions options, CancellationToken cancellationToken = default) =>
        _client.TryDeleteAsync(KeyOf(key), options, cancellationToken);

    /// <summary>Returns entries in key order, as <see cref="KvClient.ScanAsync"/> does.</summary>
    /// <param name="scan">Which ones, by their keys in the table; null: all.</param>
    /// <param name="cancellationToken">Stops the scan.</param>
    /// <exception cref="JsonException">A value is not JSON of the type.</exception>
    /// <exception cref="KvException">As of <see cref="KvClient.ScanAsync"/>.</exception>
    public async IAsyncEnumerable<KvEntry<T>> ScanAsync(KvScan? scan = null, [EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        var terms = InCluster(scan ?? new KvScan());
        await foreach (var entry in _client.ScanAsync(terms, cancellationToken).ConfigureAwait(false))
            yield return new KvEntry<T>(InTable(entry.Key), terms.KeysOnly ? default : ValueOf(entry), entry.Etag) { Life = entry.Life };
    }

    private KvScan InCluster(KvScan scan) => scan with
    {
        Prefix = KeyOf(scan.Prefix),
        Start = scan.Start.IsEmpty ? default : KeyOf(scan.Start),
        End = scan.End.IsEmpty ? default : KeyOf(scan.End),
    };

    private KvKey InTable(KvKey key) => key.Memory[_prefix.Length..];

    private T? ValueOf(in KvEntry entry) => JsonSerializer.Deserialize(entry.Value.Span, _type);
}
