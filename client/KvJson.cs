using System.Diagnostics.CodeAnalysis;
using System.Text.Json;
using System.Text.Json.Serialization.Metadata;

namespace KvCluster.Client;

/// <summary>
/// Values of a type, stored as JSON in UTF-8. The forms with a <see cref="JsonTypeInfo{T}"/>, of a context that the compiler fills, also work in trimmed and
/// natively compiled programs. Thread-safe.
/// </summary>
public static class KvJson
{
    private const string Reflection = "Without JsonTypeInfo, JSON is read and written by reflection, which trimmed and natively compiled programs may lack.";

    /// <summary>Returns the value of a key, read as JSON.</summary>
    /// <param name="client">The client.</param>
    /// <param name="key">1 to 2,048 bytes.</param>
    /// <param name="type">How the value is read.</param>
    /// <param name="options">As in <see cref="KvClient.GetAsync"/>.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="JsonException">The value is not JSON of the type.</exception>
    public static async ValueTask<GetResult<T>> GetAsync<T>(
        this IKvClient client, KvKey key, JsonTypeInfo<T> type, KvGetOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(client);
        ArgumentNullException.ThrowIfNull(type);
        var read = await client.GetAsync(key, options, cancellationToken).ConfigureAwait(false);
        return GetResult<T>.Of(read, read.Found ? JsonSerializer.Deserialize(read.Value.Span, type) : default);
    }

    /// <inheritdoc cref="GetAsync{T}(IKvClient, KvKey, JsonTypeInfo{T}, KvGetOptions?, CancellationToken)"/>
    /// <param name="json">How the value is read.</param>
    [RequiresUnreferencedCode(Reflection)]
    [RequiresDynamicCode(Reflection)]
    public static async ValueTask<GetResult<T>> GetAsync<T>(
        this IKvClient client, KvKey key, JsonSerializerOptions json, KvGetOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(client);
        ArgumentNullException.ThrowIfNull(json);
        var read = await client.GetAsync(key, options, cancellationToken).ConfigureAwait(false);
        return GetResult<T>.Of(read, read.Found ? JsonSerializer.Deserialize<T>(read.Value.Span, json) : default);
    }

    /// <summary>Sets a key to a value, written as JSON.</summary>
    /// <param name="client">The client.</param>
    /// <param name="key">1 to 2,048 bytes; with <see cref="KvPutOptions.Sequence"/> the prefix of the new key.</param>
    /// <param name="value">Up to 8 MiB of JSON.</param>
    /// <param name="type">How the value is written.</param>
    /// <param name="options">As in <see cref="KvClient.PutAsync"/>.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="NotSupportedException">The type cannot be written as JSON.</exception>
    public static ValueTask<PutResult> PutAsync<T>(
        this IKvClient client, KvKey key, T value, JsonTypeInfo<T> type, KvPutOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(client);
        ArgumentNullException.ThrowIfNull(type);
        return client.PutAsync(key, JsonSerializer.SerializeToUtf8Bytes(value, type), options, cancellationToken);
    }

    /// <inheritdoc cref="PutAsync{T}(IKvClient, KvKey, T, JsonTypeInfo{T}, KvPutOptions?, CancellationToken)"/>
    /// <param name="json">How the value is written.</param>
    [RequiresUnreferencedCode(Reflection)]
    [RequiresDynamicCode(Reflection)]
    public static ValueTask<PutResult> PutAsync<T>(
        this IKvClient client, KvKey key, T value, JsonSerializerOptions json, KvPutOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(client);
        ArgumentNullException.ThrowIfNull(json);
        return client.PutAsync(key, JsonSerializer.SerializeToUtf8Bytes(value, json), options, cancellationToken);
    }

    /// <summary>Sets a key to a value, written as JSON, if a condition holds. That it does not is a result, and no exception.</summary>
    /// <param name="client">The client.</param>
    /// <param name="key">1 to 2,048 bytes; with <see cref="KvPutOptions.Sequence"/> the prefix of the new key.</param>
    /// <param name="value">Up to 8 MiB of JSON.</param>
    /// <param name="type">How the value is written.</param>
    /// <param name="options">As in <see cref="KvClient.TryPutAsync"/>.</param>
    /// <param name="cancellationToken">Stops waiting.</param>
    /// <exception cref="NotSupportedException">The type cannot be written as JSON.</exception>
    public static ValueTask<KvTryResult<PutResult>> TryPutAsync<T>(
        this IKvClient client, KvKey key, T value, JsonTypeInfo<T> type, KvPutOptions options, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(client);
        ArgumentNullException.ThrowIfNull(type);
        return client.TryPutAsync(key, JsonSerializer.SerializeToUtf8Bytes(value, type), options, cancellationToken);
    }

    /// <inheritdoc cref="TryPutAsync{T}(IKvClient, KvKey, T, JsonTypeInfo{T}, KvPutOptions, CancellationToken)"/>
    /// <param name="json">How the value is written.</param>
    [RequiresUnreferencedCode(Reflection)]
    [RequiresDynamicCode(Reflection)]
    public static ValueTask<KvTryResult<PutResult>> TryPutAsync<T>(
        this IKvClient client, KvKey key, T value, JsonSerializerOptions json, KvPutOptions options, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(client);
        ArgumentNullException.ThrowIfNull(json);
        return client.TryPutAsync(key, JsonSerializer.SerializeToUtf8Bytes(value, json), options, cancellationToken);
    }
}
