using KvCluster.Replication.Protocol;
using KvCluster.Replication.State;

namespace KvCluster.Tests.Replication;

/// <summary>When a control file is written, with one shard on a node and with many.</summary>
public sealed class HardStateKeeperTests
{
    private const long IntervalUs = 1_000_000;
    private const int Shards = 1_000;

    [Fact]
    public void Pump_OfOneShard_WritesAtOnceAndThenOnceInAnInterval()
    {
        var keeper = Keeper(0);
        Assert.Equal([1L, 2], WritesOf(keeper, nowUs: 10 * IntervalUs, stepUs: IntervalUs, steps: 2));
        Assert.Equal([3L], WritesOf(keeper, nowUs: (12 * IntervalUs) + 1, stepUs: IntervalUs / 10, steps: 9));
    }

    /// <summary>All shards of a node begin to work together.</summary>
    [Fact]
    public void Pump_OfManyShards_IsSpreadOverTheirIntervals()
    {
        const int Every = 10;
        const int Slots = 40;
        var writes = new int[Slots];
        for (var shard = 0u; shard < Shards; shard++)
        {
            var keeper = Keeper(shard);
            keeper.Every = Every;
            for (var slot = 0; slot < Slots; slot++)
                writes[slot] += WritesOf(keeper, (100 * IntervalUs) + (slot * IntervalUs / 2), stepUs: 1, steps: 1).Count;
        }
        Assert.Equal(Shards * Slots / 2 / Every, writes.Sum(), tolerance: Shards / 10);
        Assert.InRange(writes.Max(), 1, Shards / Every);
    }

    [Fact]
    public void Pump_OfManyShards_WritesAPromiseAtOnce()
    {
        var keeper = Keeper(0);
        keeper.Every = 10;
        keeper.Require(keeper.Wanted with { PromisedEpoch = 5 });
        var effects = new List<Effect>();
        keeper.Pump(effects, nowUs: 17);
        Assert.Equal(5ul, Assert.IsType<Effect.WriteControl>(Assert.Single(effects)).Control.PromisedEpoch);
    }

    /// <summary>A crash finds a control file that is some seconds old, however many shards there are.</summary>
    [Fact]
    public void Pump_OfAnyNumberOfShards_WritesWithinTenIntervals()
    {
        var keeper = Keeper(7);
        keeper.Every = 1_000_000;
        Assert.NotEmpty(WritesOf(keeper, nowUs: 3 * IntervalUs, stepUs: IntervalUs, steps: 11));
    }

    private static HardStateKeeper Keeper(uint shard) => new(new ShardId(shard), new HardState { ReplicaId = new(1) }, IntervalUs);

    // Commits one more change at each step, and returns those changes with which the file was written.
    private static List<long> WritesOf(HardStateKeeper keeper, long nowUs, long stepUs, int steps)
    {
        var effects = new List<Effect>();
        var written = new List<long>();
        for (var step = 0; step < steps; step++)
        {
            keeper.Note(keeper.Wanted with { Committed = new Etag(1, keeper.Wanted.Committed.Change + 1) });
            effects.Clear();
            keeper.Pump(effects, nowUs + (step * stepUs));
            foreach (var write in effects.Cast<Effect.WriteControl>())
            {
                written.Add((long)write.Control.Committed.Change);
                keeper.Written(write.Control);
            }
        }
        return written;
    }
}
