using System.Buffers.Text;
using System.Security.Cryptography;
using KvCluster.Client;
using Microsoft.AspNetCore.Authentication;
using Microsoft.AspNetCore.Authentication.Cookies;
using Microsoft.AspNetCore.DataProtection;

namespace KvCluster.Extensions.AspNetCore;

/// <summary>
/// The tickets of signed-in users in a cluster: a cookie has only the name of its ticket, and who is signed out is so in every process at once. A ticket ends
/// with its key. In the cluster it is protected as it would be in its cookie. Calls wait for the cluster as long as any of the client does, and fail with a
/// <see cref="KvException"/>: a user whose ticket cannot be read is not one who is signed out. Any thread.
/// </summary>
internal sealed class KvTicketStore : ITicketStore
{
    /// <summary>As random as a secret, because whoever knows the name of a ticket might be able to make a cookie of it.</summary>
    private const int NameBytes = 32;

    private static readonly TimeSpan ShortestLife = TimeSpan.FromMilliseconds(1);

    /// <summary>That of keys of the cluster.</summary>
    private static readonly TimeSpan LongestLife = TimeSpan.FromDays(36_500);

    private readonly KvClient _client;
    private readonly KvTicketStoreOptions _options;
    private readonly IDataProtector _protector;
    private readonly TimeProvider _time;

    public KvTicketStore(KvClient client, KvTicketStoreOptions options, IDataProtectionProvider protection, TimeProvider time)
    {
        (_client, _options, _time) = (client, options, time);
        _protector = protection.CreateProtector("KvCluster.Extensions.AspNetCore.KvTicketStore");
    }

    public async Task<string> StoreAsync(AuthenticationTicket ticket)
    {
        ArgumentNullException.ThrowIfNull(ticket);
        var name = Base64Url.EncodeToString(RandomNumberGenerator.GetBytes(NameBytes));
        await _client.PutAsync(KeyOf(name), Protected(ticket), new KvPutOptions { TimeToLive = LifeOf(ticket) }).ConfigureAwait(false);
        return name;
    }

    public async Task RenewAsync(string key, AuthenticationTicket ticket)
    {
        ArgumentNullException.ThrowIfNull(ticket);
        // Whoever has signed out while a request was under way is not signed in again by what the request prolongs.
        var terms = new KvPutOptions { TimeToLive = LifeOf(ticket), Condition = KvCondition.Exists() };
        await _client.TryPutAsync(KeyOf(key), Protected(ticket), terms).ConfigureAwait(false);
    }

    public async Task<AuthenticationTicket?> RetrieveAsync(string key)
    {
        // What was acknowledged holds: a ticket that was removed is not found, whichever process asks.
        var read = await _client.GetAsync(KeyOf(key), KvReadMode.Leader).ConfigureAwait(false);
        if (!read.Found)
            return null;
        try
        {
            return TicketSerializer.Default.Deserialize(_protector.Unprotect(read.Value.ToArray()));
        }
        catch (CryptographicException)
        {
            // The keys of data protection are others now, as for a cookie that has its ticket within.
            return null;
        }
    }

    public async Task RemoveAsync(string key) => await _client.DeleteAsync(KeyOf(key)).ConfigureAwait(false);

    private byte[] Protected(AuthenticationTicket ticket) => _protector.Protect(TicketSerializer.Default.Serialize(ticket));

    private TimeSpan LifeOf(AuthenticationTicket ticket)
    {
        var life = ticket.Properties.ExpiresUtc is { } end ? end - _time.GetUtcNow() : _options.Expiration;
        return life < ShortestLife ? ShortestLife : life > LongestLife ? LongestLife : life;
    }

    private KvKey KeyOf(string name)
    {
        ArgumentException.ThrowIfNullOrEmpty(name);
        return _options.Prefix + name;
    }
}
