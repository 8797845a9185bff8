using KvCluster.Client.Routing;
using KvCluster.ServiceDefaults.Exchanges;
using KvCluster.ServiceDefaults.Memory;

namespace KvCluster.Router.Api;

/// <summary>
/// How many reads of one exchange are sent at once; the others wait beside the stream. Their replies come over connections that all callers share and that
/// are always read, so the number of reads sent at once is limited by the size of their replies. A shard that is alone may use all of it. A stuck shard
/// leaves half as many to the others, and each shard may always have one. Which replica a read is sent to is not decided here. Used under the exchange's
/// lock.
/// </summary>
/// <param name="send">Sends a read that has waited. Called under the lock, so it must not send on this thread.</param>
internal sealed class ReadsInFlight(Action<ExchangeCall> send)
{
    /// <summary>How many reads may be sent at once while nothing is known of their replies. Each small reply allows one more.</summary>
    private const int FirstReads = 16;

    // At most one for each shard of the map.
    private readonly Dictionary<ShardId, OfShard> _shards = [];
    private int _sent;
    private int _waiting;
    private int _sentMax = FirstReads;

    /// <summary>Returns true if a read may be sent now. Otherwise it waits for its turn.</summary>
    public bool TryBegin(ExchangeCall read, ShardId shard)
    {
        var reads = read.Reads = ReadsOf(shard);
        if (reads.Waiting.Count == 0 && MaySend(reads))
        {
            Begin(reads);
            return true;
        }
        reads.Waiting.AddLast(read.Turn);
        _waiting++;
        return false;
    }

    /// <summary>A read that was sent has ended.</summary>
    /// <param name="responseBytes">The size of its response. As many reads are sent at once as <see cref="ReplyBudget"/> keeps room for.</param>
    public void End(ExchangeCall read, int responseBytes)
    {
        read.Reads!.Sent--;
        _sent--;
        _sentMax = responseBytes <= ByteBudget.SmallBytes
            ? Math.Min(_sentMax + 1, ExchangeLimits.CallsMax)
            : Math.Clamp((ExchangeLimits.ReplyBytesMax - ExchangeLimits.WaitingBytesMax) / responseBytes, 1, _sentMax);
    }

    /// <summary>Sends as many of the waiting reads as may be sent now.</summary>
    public void SendWaiting()
    {
        if (_waiting == 0)
            return;
        foreach (var reads in _shards.Values)
        {
            while (reads.Waiting.First is { } first && MaySend(reads))
            {
                Withdraw(first);
                Begin(reads);
                send(first.Value);
            }
        }
    }

    /// <summary>Takes a call out of the waiting ones. Returns false if it does not wait.</summary>
    public bool TryWithdraw(ExchangeCall read)
    {
        if (!read.IsWaiting)
            return false;
        Withdraw(read.Turn);
        return true;
    }

    /// <summary>Takes all reads out of the waiting ones.</summary>
    public IEnumerable<ExchangeCall> WithdrawAll()
    {
        foreach (var reads in _shards.Values)
        {
            while (reads.Waiting.First is { } first)
            {
                Withdraw(first);
                yield return first.Value;
            }
        }
    }

    /// <summary>
    /// Groups the reads by shard that came while there was no map, and waited as those of one shard. One of their shards may be stuck.
    /// </summary>
    public void Regroup(Func<ExchangeCall, ShardId> shardOf)
    {
        // Each is moved once. A malformed request stays in the group of unknown shards, behind the others.
        var unknown = ReadsOf(RouteTable.NoShard).Waiting;
        for (var left = unknown.Count; left > 0; left--)
        {
            var turn = unknown.First!;
            unknown.RemoveFirst();
            turn.Value.Reads = ReadsOf(shardOf(turn.Value));
            turn.Value.Reads.Waiting.AddLast(turn);
        }
        SendWaiting();
    }

    private OfShard ReadsOf(ShardId shard)
    {
        if (!_shards.TryGetValue(shard, out var reads))
            _shards[shard] = reads = new OfShard();
        return reads;
    }

    private bool MaySend(OfShard reads) => reads.Sent == 0 || reads.Sent < (2 * _sentMax) - _sent;

    private void Begin(OfShard reads)
    {
        reads.Sent++;
        _sent++;
    }

    private void Withdraw(LinkedListNode<ExchangeCall> turn)
    {
        turn.List!.Remove(turn);
        _waiting--;
    }

    /// <summary>The reads of one shard: the number sent, and those that wait to be sent.</summary>
    internal sealed class OfShard
    {
        public int Sent { get; set; }

        public LinkedList<ExchangeCall> Waiting { get; } = new();
    }
}
