using System.Runtime.CompilerServices;
using KvCluster.Client;

namespace KvCluster.Examples;

/// <summary>
/// How many there are of each good, and the orders that have taken some. An order takes all of its goods or none, and is taken once, however often it is
/// placed. All keys have one prefix, so that they are in one shard, which a write of several keys needs.
/// </summary>
internal sealed class Stock(IKvClient store)
{
    private static readonly KvKey Goods = KvKey.Of("inventory", "goods");

    /// <summary>Puts goods into the stock.</summary>
    /// <returns>How many there are now.</returns>
    public async Task<long> AddAsync(string good, long count, CancellationToken cancellationToken = default) =>
        (await store.IncrementAsync(KeyOf(good), count, cancellationToken: cancellationToken)).Number;

    /// <summary>Takes the goods of an order, if there are enough of each.</summary>
    /// <param name="id">Names the order. The same order may be placed again, when its answer was lost.</param>
    /// <param name="goods">How many of each good.</param>
    /// <param name="cancellationToken">Stops waiting. The order may still be taken; placing it again tells.</param>
    /// <returns>False if there is too little of something. Nothing is taken then.</returns>
    public async Task<bool> OrderAsync(string id, IReadOnlyDictionary<string, long> goods, CancellationToken cancellationToken = default)
    {
        var order = KvKey.Of("inventory", "orders", id);
        KvKey[] keys = [order, .. goods.Keys.Select(KeyOf)];
        while (true)
        {
            var read = await store.GetManyAsync(keys, cancellationToken: cancellationToken);
            if (read[0].Found)
                return true;
            var write = new KvWrite().If(KvCondition.Absent(order)).Put(order, Describe(goods));
            foreach (var (good, present) in goods.Zip(read.Skip(1)))
            {
                var left = (present.Found ? present.Value.ToInt64() : 0) - good.Value;
                if (!present.Found || left < 0)
                    return false;
                // Nobody has taken any of it since it was read.
                write.If(KvCondition.EtagEquals(present.Etag, KeyOf(good.Key))).Put(KeyOf(good.Key), KvValue.FromInt64(left));
            }
            try
            {
                // Otherwise somebody else was first.
                if ((await store.TryWriteAsync(write, cancellationToken: cancellationToken)).Succeeded)
                    return true;
            }
            catch (KvOutcomeUnknownException)
            {
                // The key of the order tells whether it was taken.
            }
        }
    }

    /// <summary>All goods and how many there are of each, by name.</summary>
    public async IAsyncEnumerable<(string Good, long Count)> ListAsync([EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        await foreach (var entry in store.ScanAsync(new KvScan { Prefix = Goods }, cancellationToken))
        {
            if (entry.Key.TryRead(out var parts))
                yield return (parts[2].ToText(), entry.Value.ToInt64());
        }
    }

    /// <summary>How many orders were taken.</summary>
    public Task<long> CountOrdersAsync(CancellationToken cancellationToken = default) =>
        store.CountAsync(KvKey.Of("inventory", "orders"), cancellationToken: cancellationToken);

    private static KvKey KeyOf(string good) => KvKey.Of("inventory", "goods", good);

    private static string Describe(IReadOnlyDictionary<string, long> goods) => string.Join(", ", goods.Select(static good => $"{good.Value} {good.Key}"));
}
