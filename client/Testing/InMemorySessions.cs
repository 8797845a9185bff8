using System.Security.Cryptography;
using KvCluster.Client;

namespace KvCluster.Testing;

/// <summary>The calls for sessions of an <see cref="InMemoryKvClient"/>. Thread-safe.</summary>
internal sealed class InMemorySessions(InMemoryStore store) : IKvSessions
{
    private static readonly TimeSpan LifetimeMin = TimeSpan.FromSeconds(1);
    private static readonly TimeSpan LifetimeMax = TimeSpan.FromDays(1);

    public ValueTask<KvSession> OpenAsync(
        KvKey key, TimeSpan lifetime, KvCallOptions? options = null, CancellationToken cancellationToken = default) => InMemoryStore.AnswerAsync(
        () =>
        {
            RequestChecks.Key(key);
            if (lifetime < LifetimeMin || lifetime > LifetimeMax)
                throw Refusals.BadRequest("The lifetime of a session has a second to a day. Nothing was applied.");
            var id = RandomNumberGenerator.GetBytes(16);
            var opened = store.Change(store.IndexOf(key), (shard, now) => shard.Open(id, lifetime, now).Opened);
            return new KvSession(key, id, lifetime) { Opened = opened };
        },
        cancellationToken);

    public ValueTask<TimeSpan> KeepAliveAsync(
        KvSession session, KvCallOptions? options = null, CancellationToken cancellationToken = default) => InMemoryStore.AnswerAsync(
        () => Change(session, static (shard, found, now) =>
        {
            found?.KeepAlive(now);
            return found?.Lifetime ?? TimeSpan.Zero;
        }),
        cancellationToken);

    public ValueTask<ulong?> EndAsync(
        KvSession session, KvCallOptions? options = null, CancellationToken cancellationToken = default) => InMemoryStore.AnswerAsync(
        () => Change<ulong?>(session, static (shard, found, now) => found is null ? null : shard.EndSession(found, now)),
        cancellationToken);

    private T Change<T>(KvSession session, Func<Shard, Session?, TimeSpan, T> change)
    {
        ArgumentNullException.ThrowIfNull(session);
        RequestChecks.Key(session.Key);
        RequestChecks.SessionId(session.Id);
        return store.Change(store.IndexOf(session.Key), (shard, now) => change(shard, shard.FindSession(session.Id), now));
    }
}
