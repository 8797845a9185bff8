using KvCluster.Client;
using Medallion.Threading;

namespace KvCluster.Extensions.DistributedLock;

/// <summary>
/// Makes locks of a cluster for programs that use the interfaces of DistributedLock. Thread-safe; it has no state of its own.
/// </summary>
/// <remarks>
/// These interfaces have no fencing, and a lock without it is not safe: a holder that pauses loses its lock, does not notice, and goes on while somebody else
/// holds it. Where two at a time must not happen, guard changes by <see cref="KvDistributedLockHandle.Lock"/>. <see cref="KvLock"/> says what happens in
/// failures.
/// </remarks>
public sealed class KvDistributedLockProvider : IDistributedLockProvider
{
    private readonly IKvClient _client;
    private readonly KvKey _prefix;
    private readonly KvLockOptions? _options;

    /// <summary>A provider of locks.</summary>
    /// <param name="client">Makes the calls. It must live longer than the locks are held.</param>
    /// <param name="prefix">What the keys of all locks begin with. The name of a lock follows, as UTF-8.</param>
    /// <param name="options">How locks are held.</param>
    /// <exception cref="ArgumentException">The prefix is empty: a lock could be any key of the cluster.</exception>
    public KvDistributedLockProvider(IKvClient client, KvKey prefix, KvLockOptions? options = null)
    {
        ArgumentNullException.ThrowIfNull(client);
        if (prefix.IsEmpty)
            throw new ArgumentException("Without a prefix a lock could be any key of the cluster, so there is none. Choose a prefix.", nameof(prefix));
        (_client, _prefix, _options) = (client, prefix, options);
    }

    /// <summary>Makes a lock, which nobody holds by that.</summary>
    /// <param name="name">Its name. With the prefix it has at most 2,048 bytes, or acquiring it fails.</param>
    /// <exception cref="ArgumentException">The name has half of a surrogate pair.</exception>
    public IDistributedLock CreateLock(string name)
    {
        KvKey own = name;
        return new ClusterLock(_client, name, (byte[])[.. _prefix.Span, .. own.Span], _options);
    }
}
