using System.Collections.Frozen;
using KvCluster.Client;
using Microsoft.AspNetCore.DataProtection.KeyManagement;

namespace KvCluster.Extensions.DataProtection;

/// <summary>
/// Creates keys one at a time in all processes of a program. Of those that start together, each finds that there is no key. Without this each would create one,
/// and go on for a day before it knows those of the others, whose cookies it would refuse. Any thread.
/// </summary>
/// <param name="inner">Creates and reads keys.</param>
/// <param name="client">Makes the calls for the lock.</param>
/// <param name="lockKey">The key that is there while a process creates one.</param>
internal sealed class SharedKeyManager(IKeyManager inner, KvClient client, KvKey lockKey) : IKeyManager
{
    /// <summary>The lock of a process that has ended or stands still goes after so long. Then two may create a key, as without a lock.</summary>
    private static readonly TimeSpan LockLife = TimeSpan.FromSeconds(30);

    private static readonly TimeSpan Pause = TimeSpan.FromMilliseconds(100);

    /// <summary>How far the clocks of a program's processes may differ, as data protection allows it.</summary>
    private static readonly TimeSpan ClockSkewMax = TimeSpan.FromMinutes(5);

    // The keys that this process knew when it found that it needs another one.
    private volatile FrozenSet<Guid>? _known;

    public IReadOnlyCollection<IKey> GetAllKeys()
    {
        var keys = inner.GetAllKeys();
        _known = IdsOf(keys);
        return keys;
    }

    /// <returns>A new key; or one that another process has created since this one has read the keys, if it serves as well.</returns>
    public IKey CreateNewKey(DateTimeOffset activationDate, DateTimeOffset expirationDate) =>
        CreateAsync(activationDate, expirationDate).GetAwaiter().GetResult();

    public CancellationToken GetCacheExpirationToken() => inner.GetCacheExpirationToken();

    public void RevokeAllKeys(DateTimeOffset revocationDate, string? reason = null) => inner.RevokeAllKeys(revocationDate, reason);

    public void RevokeKey(Guid keyId, string? reason = null) => inner.RevokeKey(keyId, reason);

    private async Task<IKey> CreateAsync(DateTimeOffset activationDate, DateTimeOffset expirationDate)
    {
        var known = _known;
        var held = await TakeLockAsync().ConfigureAwait(false);
        try
        {
            var keys = inner.GetAllKeys();
            var created = known is null ? null : keys.FirstOrDefault(key => !known.Contains(key.KeyId) && !key.IsRevoked
                && key.ActivationDate <= activationDate + ClockSkewMax && key.ExpirationDate > activationDate);
            created ??= inner.CreateNewKey(activationDate, expirationDate);
            _known = IdsOf(keys.Append(created));
            return created;
        }
        finally
        {
            await ReleaseAsync(held).ConfigureAwait(false);
        }
    }

    private static FrozenSet<Guid> IdsOf(IEnumerable<IKey> keys) => keys.Select(static key => key.KeyId).ToFrozenSet();

    // Waits while others have it. Each has it for its life at most.
    private async Task<Etag> TakeLockAsync()
    {
        while (true)
        {
            try
            {
                var options = new KvPutOptions { Condition = KvCondition.Absent(), TimeToLive = LockLife };
                return (await client.PutAsync(lockKey, default, options).ConfigureAwait(false)).Etag;
            }
            catch (KvConditionFailedException)
            {
                await Task.Delay(Pause).ConfigureAwait(false);
            }
        }
    }

    private async Task ReleaseAsync(Etag held)
    {
        try
        {
            await client.DeleteAsync(lockKey, KvCondition.EtagEquals(held)).ConfigureAwait(false);
        }
        catch (KvException)
        {
            // It ends by itself, or did so before and is another's now. What became of the key matters more.
        }
    }
}
