using System.Runtime.CompilerServices;
using KvCluster.Client;

namespace KvCluster.Examples;

/// <summary>
/// Orders, and an invoice for each that workers write later. Invoices are numbered from 1 on, without gaps. An order and its job are placed in one write, and
/// an invoice and the completion of its job are another one, so that no order is left without an invoice or gets two. All keys have one prefix, so that they
/// are in one shard, which these writes need.
/// </summary>
internal sealed class Invoices(IKvClient store)
{
    private static readonly KvKey Last = KvKey.Of("billing", "last");

    private readonly KvQueue _jobs = new(store, KvKey.Of("billing", "jobs"), new KvQueueOptions { Worker = Environment.MachineName });

    /// <summary>Places an order, once, however often this is called with its id.</summary>
    /// <param name="id">Names the order.</param>
    /// <param name="cents">What it costs.</param>
    /// <param name="cancellationToken">Stops waiting. The order may still be placed.</param>
    public async Task OrderAsync(string id, long cents, CancellationToken cancellationToken = default)
    {
        while (true)
        {
            var write = new KvWrite().If(KvCondition.Absent(OrderKey(id))).Put(OrderKey(id), KvValue.FromInt64(cents));
            _jobs.EnqueueIn(write, id);
            try
            {
                // If the condition does not hold, it was placed before.
                await store.TryWriteAsync(write, cancellationToken: cancellationToken);
                return;
            }
            catch (KvOutcomeUnknownException)
            {
                // Placing it again is harmless, because of the condition.
            }
        }
    }

    /// <summary>Writes invoices until it is ended.</summary>
    /// <param name="parallel">How many at the same time.</param>
    /// <param name="stopping">Ends it.</param>
    public Task WorkAsync(int parallel, CancellationToken stopping) => _jobs.RunAsync(WriteAsync, parallel, stopping);

    /// <summary>How many orders wait for their invoice.</summary>
    public Task<long> CountWaitingAsync(CancellationToken cancellationToken = default) => _jobs.CountAsync(cancellationToken);

    /// <summary>The invoices by number.</summary>
    public async IAsyncEnumerable<(long Number, string Text)> ListAsync([EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        await foreach (var entry in store.ScanAsync(new KvScan { Prefix = KvKey.Of("billing", "invoices") }, cancellationToken))
        {
            if (entry.Key.TryRead(out var parts))
                yield return (parts[2].ToInt64(), entry.Value.ToUtf8String());
        }
    }

    private async Task WriteAsync(KvJob job, CancellationToken handling)
    {
        var id = job.Payload.ToUtf8String();
        var order = await store.GetAsync(OrderKey(id), cancellationToken: handling);
        while (true)
        {
            var last = await store.GetAsync(Last, cancellationToken: handling);
            var number = last.Found ? last.Value.ToInt64() + 1 : 1;
            var write = new KvWrite()
                .If(KvCondition.EtagEquals(last.Etag, Last))
                .Put(Last, KvValue.FromInt64(number))
                .Put(KvKey.Of("billing", "invoices", number), $"order {id}: {order.Value.ToInt64()} cents");
            // Otherwise somebody else has taken the number, or has the job.
            var tried = await store.TryWriteAsync(job.CompleteIn(write), cancellationToken: handling);
            if (tried.Succeeded || tried.Failed.Index != 0)
                return;
        }
    }

    private static KvKey OrderKey(string id) => KvKey.Of("billing", "orders", id);
}
