using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>A session of a shard. Used under the lock of the store.</summary>
internal sealed class Session
{
    /// <param name="id">Its secret.</param>
    /// <param name="opened">The etag of its opening, by which keys name it.</param>
    /// <param name="lifetime">How long it lives without a call.</param>
    /// <param name="now">The time of the store.</param>
    public Session(KvKey id, Etag opened, TimeSpan lifetime, TimeSpan now)
    {
        (Id, Opened, Lifetime) = (id, opened, lifetime);
        KeepAlive(now);
    }

    public KvKey Id { get; }

    public Etag Opened { get; }

    public TimeSpan Lifetime { get; }

    /// <summary>When it ends, in the time of the store.</summary>
    public TimeSpan Deadline { get; private set; }

    /// <summary>Begins its countdown anew.</summary>
    public void KeepAlive(TimeSpan now) => Deadline = now + Lifetime;
}
