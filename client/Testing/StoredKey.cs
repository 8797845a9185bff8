using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>A key with its value. Immutable; its bytes are its own.</summary>
/// <param name="Key">The key.</param>
/// <param name="Value">Its value.</param>
/// <param name="Etag">The etag of the change that set the value.</param>
/// <param name="Expiry">When it ends, in the time of the store; null: it does not expire.</param>
/// <param name="Owner">The etag of the opening of the session that owns it; null: none does.</param>
internal sealed record StoredKey(KvKey Key, KvValue Value, Etag Etag, TimeSpan? Expiry, Etag? Owner)
{
    /// <summary>In the order of their keys.</summary>
    public static readonly IComparer<StoredKey> Order = Comparer<StoredKey>.Create(static (left, right) => left.Key.CompareTo(right.Key));

    /// <summary>What stands for a key in searches.</summary>
    public static StoredKey At(KvKey key) => new(key, default, default, null, null);

    /// <summary>The entry of a read.</summary>
    /// <param name="keysOnly">Without the value.</param>
    /// <param name="now">The time, for what is left of its life; null: that was not asked for.</param>
    public KvEntry ToEntry(bool keysOnly, TimeSpan? now) => new(Key, keysOnly ? default : Value, Etag) { Life = LifeAt(now) };

    /// <summary>What ends the key besides a delete.</summary>
    /// <inheritdoc cref="ToEntry" path="/param[@name='now']"/>
    public KvLife LifeAt(TimeSpan? now)
    {
        if (now is not { } time || (Expiry is null && Owner is null))
            return default;
        return new KvLife(Expiry is { } end ? (end > time ? end - time : TimeSpan.Zero) : null, Owner);
    }
}
