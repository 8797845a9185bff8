using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// Requests that are merged into one record get the answers, and leave the trees, that they get and leave one after the other. Puts whose answers do not depend
/// on the state are applied after their record was passed to the journal, so what comes after them in a transaction must see them nevertheless.
/// </summary>
public sealed class MergedTransactionTests
{
    private const int Keys = 12;
    private const int KeysThatStay = 200;
    private const int LargeValueBytes = 20_000;
    private static readonly ReplicaId Replica = new(1);

    [Fact]
    public void Requests_MergedOrOneByOne_HaveTheSameAnswersAndTrees() => Seeds.Run(20, static random =>
    {
        using var merged = new ReplicaBench(Replica);
        using var alone = new ReplicaBench(Replica);
        using var follower = new ReplicaBench(new(2));
        foreach (var bench in (ReplicaBench[])[merged, alone])
        {
            bench.Lead(1);
            bench.Commit(bench.Store.Log.Last.Etag);
            bench.OpenSession(5);
            // With more expiries than keys each record looks for stale ones, and then what a record has depends on how many there are.
            bench.Submit(static request =>
            {
                for (var key = 0; key < KeysThatStay; key++)
                    request.Put([.. "!stays"u8, (byte)key], "v"u8);
            });
            bench.AppendBatch();
            Finish(bench);
        }
        ulong sequence = 0;
        for (var batch = 0; batch < 6; batch++)
        {
            var requests = Enumerable.Range(0, random.Next(1, 25)).Select(_ => NextRequest(random, ref sequence)).ToArray();
            var answers = requests.Select(request => merged.Submit(request)).ToArray();
            while (!merged.Store.Requests.Queue.IsEmpty)
                merged.AppendBatch();
            Finish(merged);
            var expected = requests.Select(request =>
            {
                var answer = alone.Submit(request);
                alone.AppendBatch();
                Finish(alone);
                return StoreBench.Answer(answer);
            }).ToArray();
            Assert.Equal(expected, answers.Select(StoreBench.Answer));
            Assert.Equal(alone.Digest(), merged.Digest());
            follower.Follow(merged);
            follower.Commit(follower.Store.Log.Last.Etag);
            follower.Run();
            Assert.Equal(merged.Digest(), follower.Digest());
        }
    });

    [Fact]
    public void Condition_OnWhatARequestBeforeItHasPut_SeesIt()
    {
        using var bench = new ReplicaBench(Replica);
        bench.Lead(1);
        var put = bench.Submit(request => request.Put("a"u8, "1"u8));
        var replaced = bench.Submit(request =>
        {
            request.AddCondition("a"u8, ConditionKind.ValueEquals, value: "1"u8);
            request.Put("a"u8, "2"u8);
        });
        var absent = bench.Submit(request => request.AddCondition("a"u8, ConditionKind.Absent));
        var deleted = bench.Submit(request => request.Delete("a"u8));
        Assert.True(bench.AppendBatch());
        Finish(bench);
        Assert.Equal(
            [(WriteOutcome.Applied, 0), (WriteOutcome.Applied, 0), (WriteOutcome.ConditionFailed, 0), (WriteOutcome.Applied, 1)],
            ((Task<WriteResult>[])[put, replaced, absent, deleted]).Select(StoreBench.Answer).Select(static answer => (answer.Outcome, answer.Deleted)));
        Assert.Null(bench.Read("a"));
    }

    private static void Finish(ReplicaBench bench)
    {
        bench.Commit(bench.Store.Log.Last.Etag);
        bench.Run();
    }

    private static Action<WriteRequest> NextRequest(Random random, ref ulong sequence)
    {
        var seed = random.Next();
        var isIdentified = random.Next(3) == 0;
        // Alone, an identified request that changes nothing has a record of its own, which takes a change.
        var (kind, putsMin) = isIdentified ? (random.Next(2, 15), 1) : (random.Next(15), 0);
        // Sometimes the one before, which is then a repetition or another request under its number.
        sequence += isIdentified && (sequence == 0 || random.Next(4) > 0) ? 1u : 0u;
        var number = sequence;
        return request =>
        {
            var own = new Random(seed);
            Fill(request, own, kind, putsMin);
            if (isIdentified)
                request.Identify(5, number, number < 100 ? 1 : number - 99);
        };
    }

    private static void Fill(WriteRequest request, Random random, int kind, int putsMin)
    {
        if (kind == 0)
            request.AddCondition(Key(random), random.Next(2) == 0 ? ConditionKind.Exists : ConditionKind.Absent);
        else if (kind == 1)
            request.AddCondition(Key(random), ConditionKind.ValueEquals, value: Value(random));
        if (kind == 2)
            request.Delete(Key(random));
        else if (kind == 3)
            request.DeleteRange(Key(random), []);
        else if (kind == 4)
            request.SetAdd(Key(random), Key(random));
        else if (kind == 5)
            request.SetRemove(Key(random), Key(random));
        else if (kind >= 10)
            FillExecuted(request, random, kind);
        for (var puts = kind == 6 ? random.Next(100, 200) : random.Next(putsMin, 4); puts > 0; puts--)
            request.Put(Key(random), Value(random));
    }

    /// <summary>What depends on the state or the time.</summary>
    private static void FillExecuted(WriteRequest request, Random random, int kind)
    {
        request.WantsResults = kind != 13;
        request.CountsMembers = kind == 13;
        if (kind == 10)
        {
            request.Increment(StoreBench.Text($"n{random.Next(3)}"), random.Next(-5, 5));
            request.Scan([], [], 5, keysOnly: random.Next(2) == 0);
        }
        else if (kind == 11)
        {
            request.Put("p"u8, Value(random), new PutTerms((ulong)random.Next(2) << 40, 0, true));
            request.Touch(Key(random), (ulong)random.Next(2) << 40);
        }
        else if (kind == 12)
        {
            request.AddCondition(Key(random), ConditionKind.Exists);
            request.SetRemove(Key(random), Key(random));
            request.Put(Key(random), Value(random));
            request.BeginFailureList();
            request.Get(Key(random));
        }
        else if (kind == 13)
        {
            request.SetAdd(Key(random), Key(random));
            request.SetRemove(Key(random), Key(random));
        }
        else
        {
            request.Increment(Key(random), 1);
        }
    }

    private static byte[] Key(Random random) => StoreBench.Text($"key {random.Next(Keys)}");

    private static byte[] Value(Random random) => new byte[random.Next(20) == 0 ? LargeValueBytes : random.Next(3)];
}
