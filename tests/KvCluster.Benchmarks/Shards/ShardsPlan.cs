namespace KvCluster.Benchmarks.Shards;

/// <summary>What a run of the shards suite measures.</summary>
/// <param name="Rounds">Times that each row is measured; both sides of a ratio alternate.</param>
/// <param name="WarmUp">Length of a part of the warm-up of a loaded cluster, which has two parts at least. The runtime recompiles for half a minute.</param>
/// <param name="Time">Length of one measurement under load.</param>
/// <param name="Settle">How long an idle cluster is left alone before it is measured: at least half a minute for CPU time to mean anything.</param>
/// <param name="IdleTime">For how long its CPU time is measured.</param>
/// <param name="IdleShards">Its shards, of which every node has a replica.</param>
/// <param name="JournalBytes">Bytes of values in the journals of a node that is killed and opens its replicas.</param>
/// <param name="FewJournalBytes">The same where one replica has them all: fewer than start a checkpoint of one store.</param>
/// <param name="IdleReplicas">Replicas with nothing in them of a node that is killed and opens its replicas.</param>
internal sealed record ShardsPlan(
    int Rounds, TimeSpan WarmUp, TimeSpan Time, TimeSpan Settle, TimeSpan IdleTime, int IdleShards, long JournalBytes, long FewJournalBytes, int IdleReplicas)
{
    /// <summary>The full size, or a short one that shows that it works, with what the command line sets.</summary>
    public static ShardsPlan Of(bool quick, int? rounds, double? seconds)
    {
        var full = new ShardsPlan(
            rounds ?? (quick ? 1 : 3), TimeSpan.FromSeconds(25), TimeSpan.FromSeconds(seconds ?? (quick ? 2 : 10)), TimeSpan.FromSeconds(60),
            TimeSpan.FromSeconds(30), IdleShards: 300, JournalBytes: 1_000_000_000, FewJournalBytes: 300_000_000, IdleReplicas: 1_000);
        return !quick ? full : full with
        {
            WarmUp = TimeSpan.FromSeconds(3),
            Settle = TimeSpan.FromSeconds(10),
            IdleTime = TimeSpan.FromSeconds(5),
            IdleShards = 60,
            JournalBytes = 100_000_000,
            FewJournalBytes = 30_000_000,
            IdleReplicas = 100,
        };
    }
}
