using System.Text.Json;
using System.Text.Json.Serialization.Metadata;

namespace KvCluster.Client;

/// <summary>
/// Changes of a value that depend on what it is: it is read, changed by the caller's function, and put back on the condition that nobody has changed it
/// meanwhile. Otherwise all of that is done again. Thread-safe.
/// </summary>
/// <remarks>
/// What happens in failures, also in <c>client/RECIPES.md</c>:
/// a process that pauses between the read and the put repeats both if somebody has changed the key meanwhile, so no change of others is lost;
/// a put whose answer is lost is repeated under its identity and applied once (<see cref="KvClientOptions.ExactlyOnce"/>), and if its outcome is still unknown
/// at the timeout, the update fails with <see cref="KvOutcomeUnknownException"/> and is not done again, because it may have been applied;
/// a key that expires or is removed meanwhile is absent for the next attempt.
/// </remarks>
public static class KvUpdates
{
    /// <summary>An attempt fails only if somebody else has changed the key, so with this many a key is changed without a pause.</summary>
    private const int AttemptsMax = 100;

    private const int PauseMaxMs = 128;

    private static readonly KvPutOptions KeepsLife = new() { KeepExpiry = true, KeepOwner = true };

    /// <summary>Changes the value of a key by what it is now.</summary>
    /// <param name="client">The client.</param>
    /// <param name="key">1 to 2,048 bytes.</param>
    /// <param name="change">
    /// Gets the value, null if the key does not exist, and returns the new one, null if the key is to be removed. It may be called several times, and only its
    /// last result counts, so it must not do anything else. Without <paramref name="options"/>, nothing is written if it returns what it was given.
    /// </param>
    /// <param name="options">What is special about the put, except a condition; null: the key keeps its expiry and its owner.</param>
    /// <param name="cancellationToken">Stops waiting. The change may still be applied.</param>
    /// <returns>The value that the key has now, with its etag.</returns>
    /// <exception cref="ArgumentException">The options have a condition.</exception>
    /// <exception cref="KvConditionFailedException">Others changed the key during each of 100 attempts. Nothing was applied.</exception>
    /// <exception cref="KvOutcomeUnknownException">The change was applied once, or not at all.</exception>
    /// <exception cref="KvException">Another call failed. Nothing was applied.</exception>
    public static async ValueTask<GetResult> UpdateAsync(
        this IKvClient client, KvKey key, Func<KvValue?, KvValue?> change, KvPutOptions? options = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(client);
        ArgumentNullException.ThrowIfNull(change);
        if (options?.Condition is not null)
            throw new ArgumentException("An update makes its condition itself, so its options have none. Examine the value in the function.", nameof(options));
        for (var attempt = 1; ; attempt++)
        {
            var read = await client.GetAsync(key, KvReadMode.Leader, cancellationToken).ConfigureAwait(false);
            var value = change(read.Found ? (KvValue?)read.Value : null);
            if (value is null ? !read.Found : options is null && read.Found && value.Value == read.Value)
                return read;
            try
            {
                return await ReplaceAsync(client, key, read, value, options ?? KeepsLife, cancellationToken).ConfigureAwait(false);
            }
            catch (KvConditionFailedException) when (attempt < AttemptsMax)
            {
                // Somebody else was first. Those who have tried in vain come back at different moments.
                var pauseMs = Random.Shared.NextDouble() * Math.Min(PauseMaxMs, 1 << Math.Min(attempt, 10));
                await Task.Delay(TimeSpan.FromMilliseconds(pauseMs), cancellationToken).ConfigureAwait(false);
            }
        }
    }

    /// <summary>Changes the value of a key, which is stored as JSON, by what it is now.</summary>
    /// <param name="client">The client.</param>
    /// <param name="key">1 to 2,048 bytes.</param>
    /// <param name="change">
    /// Gets the value, null if the key does not exist, and returns the new one, null if the key is to be removed. It may be called several times, and only its
    /// last result counts, so it must not do anything else.
    /// </param>
    /// <param name="type">How the value is read and written.</param>
    /// <param name="options">What is special about the put, except a condition; null: the key keeps its expiry and its owner.</param>
    /// <param name="cancellationToken">Stops waiting. The change may still be applied.</param>
    /// <returns>The value that the key has now, with its etag.</returns>
    /// <exception cref="ArgumentException">The options have a condition.</exception>
    /// <exception cref="JsonException">The value is not JSON of the type. Nothing was applied.</exception>
    /// <exception cref="KvConditionFailedException">Others changed the key during each of 100 attempts. Nothing was applied.</exception>
    /// <exception cref="KvOutcomeUnknownException">The change was applied once, or not at all.</exception>
    /// <exception cref="KvException">Another call failed. Nothing was applied.</exception>
    public static async ValueTask<GetResult<T>> UpdateAsync<T>(
        this IKvClient client, KvKey key, Func<T?, T?> change, JsonTypeInfo<T> type, KvPutOptions? options = null,
        CancellationToken cancellationToken = default)
        where T : class
    {
        ArgumentNullException.ThrowIfNull(change);
        ArgumentNullException.ThrowIfNull(type);
        T? changed = null;
        var updated = await client.UpdateAsync(key, Change, options, cancellationToken).ConfigureAwait(false);
        return GetResult<T>.Of(updated, changed);

        KvValue? Change(KvValue? value)
        {
            changed = change(value is { } present ? JsonSerializer.Deserialize(present.Span, type) : null);
            return changed is null ? null : (KvValue?)new KvValue(JsonSerializer.SerializeToUtf8Bytes(changed, type));
        }
    }

    /// <summary>Changes the value of a key of a table by what it is now.</summary>
    /// <param name="table">The table.</param>
    /// <param name="key">The key in the table.</param>
    /// <param name="change">
    /// Gets the value, null if the key does not exist, and returns the new one, null if the key is to be removed. It may be called several times, and only its
    /// last result counts, so it must not do anything else.
    /// </param>
    /// <param name="options">What is special about the put, except a condition; null: the key keeps its expiry and its owner.</param>
    /// <param name="cancellationToken">Stops waiting. The change may still be applied.</param>
    /// <returns>The value that the key has now, with its etag.</returns>
    /// <exception cref="JsonException">The value is not JSON of the type. Nothing was applied.</exception>
    /// <exception cref="KvException">As in the updates without a table.</exception>
    public static ValueTask<GetResult<T>> UpdateAsync<T>(
        this KvTable<T> table, KvKey key, Func<T?, T?> change, KvPutOptions? options = null, CancellationToken cancellationToken = default)
        where T : class
    {
        ArgumentNullException.ThrowIfNull(table);
        return table.Client.UpdateAsync(table.KeyOf(key), change, table.Type, options, cancellationToken);
    }

    private static async ValueTask<GetResult> ReplaceAsync(
        IKvClient client, KvKey key, GetResult read, KvValue? value, KvPutOptions options, CancellationToken cancellationToken)
    {
        if (value is not { } present)
        {
            var deleted = await client.DeleteAsync(key, KvCondition.EtagEquals(read.Etag), cancellationToken).ConfigureAwait(false);
            return new GetResult(Found: false, default, default, deleted.Position);
        }
        var unchanged = read.Found ? KvCondition.EtagEquals(read.Etag) : KvCondition.Absent();
        var put = await client.PutAsync(key, present, options with { Condition = unchanged }, cancellationToken).ConfigureAwait(false);
        return new GetResult(Found: true, present, put.Etag, put.Position);
    }
}
