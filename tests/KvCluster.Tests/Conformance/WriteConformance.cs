using System.Globalization;
using KvCluster.Client;

namespace KvCluster.Tests.Conformance;

/// <summary>Changes of several keys at once: writes, transactions, sequences.</summary>
public abstract class WriteConformance(ConformanceStore store)
{
    private readonly string _prefix = store.NewPrefix();

    private IKvClient Client => store.Client;

    [Fact]
    public async Task Write_IsAllOrNothing_WithConsecutiveEtags()
    {
        await Client.PutAsync(_prefix + "a", "1");
        var written = await Client.WriteAsync(
            new KvWrite().If(KvCondition.Exists(_prefix + "a")).Put(_prefix + "b", "2").Delete(_prefix + "a").Delete(_prefix + "none"));
        Assert.Equal(1, written.Deleted);
        Assert.Empty(written.Results);
        var etag = (await Client.GetAsync(_prefix + "b")).Etag;
        Assert.Equal(new Etag(etag.Epoch, etag.Change + 2), written.Position.Etag);
        Assert.Equal("CONDITION_FAILED", await Refused.ReasonOfAsync(
            () => Client.WriteAsync(new KvWrite().If(KvCondition.Exists(_prefix + "a")).Put(_prefix + "c", "3"))));
        Assert.False((await Client.GetAsync(_prefix + "c")).Found);
    }

    [Fact]
    public async Task Write_WithResults_TellsWhatEachOperationDid_OnTheStateBeforeIt()
    {
        var write = new KvWrite().WithResults().Put(_prefix + "a", "1");
        write.Operations.Get(_prefix + "a").Delete(_prefix + "a").Delete(_prefix + "a").Get(_prefix + "a").Increment(_prefix + "n", 5).Increment(_prefix + "n")
            .Put(_prefix + "b", "2").Scan(_prefix, _prefix + "z", 1).DeleteRange(_prefix, _prefix + "z").Touch(_prefix + "a", null);
        var results = (await Client.WriteAsync(write)).Results;
        Assert.Equal(11, results.Count);
        var entry = Assert.Single(results[1].Entries);
        Assert.Equal((_prefix + "a", "1", results[0].Etag), (entry.Key.ToUtf8String(), entry.Value.ToUtf8String(), entry.Etag));
        Assert.Equal(default, results[1].Etag);
        Assert.Equal((true, false), (results[2].Existed == true, results[3].Existed != false));
        Assert.Empty(results[4].Entries);
        Assert.Equal(5, results[5].Number);
        Assert.Equal(6, results[6].Number);
        Assert.Equal(_prefix + "b", Assert.Single(results[8].Entries).Key.ToUtf8String());
        Assert.True(results[8].More);
        Assert.Equal(2, results[9].Number);
        Assert.False(results[10].Existed);
        Assert.Equal(default, results[10].Etag);
        Assert.Equal(0, await Client.CountAsync(_prefix));
    }

    [Fact]
    public async Task Write_OfOperationsThatNeedResults_WithoutThem_IsRefused()
    {
        var reads = new KvWrite();
        reads.Operations.Get(_prefix + "a");
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.WriteAsync(reads)));
        var counts = new KvWrite();
        counts.Operations.Increment(_prefix + "a");
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.WriteAsync(counts)));
    }

    [Fact]
    public async Task Write_WithANumberThatIsNone_ChangesNothing()
    {
        await Client.PutAsync(_prefix + "n", "many");
        var write = new KvWrite().WithResults().Put(_prefix + "a", "1");
        write.Operations.Increment(_prefix + "n");
        Assert.Equal("NOT_A_NUMBER", await Refused.ReasonOfAsync(() => Client.WriteAsync(write)));
        Assert.False((await Client.GetAsync(_prefix + "a")).Found);
    }

    [Fact]
    public async Task Write_OfKeysOfTwoShards_IsRefused()
    {
        var divided = new KvWrite().Put(_prefix + "a", "1").Put("z" + _prefix, "2");
        var refused = await Assert.ThrowsAsync<KvShardsDifferException>(() => Client.WriteAsync(divided).AsTask());
        uint[] shards = [(await Client.FindShardAsync(_prefix))!.Value, (await Client.FindShardAsync("z"))!.Value];
        Assert.Equal(shards, refused.Shards);
        Assert.Contains($"shards {shards[0]} and {shards[1]}", refused.Message, StringComparison.Ordinal);
        Assert.Equal("SHARDS_DIFFER", await Refused.ReasonOfAsync(
            () => Client.WriteAsync(new KvWrite().If(KvCondition.Absent("z" + _prefix)).Put(_prefix + "a", "1"))));
        Assert.Equal("SHARDS_DIFFER", await Refused.ReasonOfAsync(() => Client.PutAsync(_prefix + "a", "1", KvCondition.Absent("z" + _prefix))));
        Assert.Equal(0, await Client.CountAsync(_prefix));
    }

    [Fact]
    public async Task Write_WithTooManyOperations_IsRefused()
    {
        var write = new KvWrite().WithResults();
        for (var number = 0; number <= 512; number++)
            write.Delete($"{_prefix}{number}");
        Assert.Equal("TOO_MANY_OPERATIONS", await Refused.ReasonOfAsync(() => Client.WriteAsync(write)));
    }

    [Fact]
    public async Task Transaction_AppliesOneOfTwoLists()
    {
        var transaction = new KvTransaction().If(KvCondition.Exists(_prefix + "a")).If(KvCondition.ValueEquals("1", _prefix + "a"));
        transaction.Then.Put(_prefix + "a", "2").Get(_prefix + "a");
        transaction.Else.Put(_prefix + "a", "1");
        var first = await Client.TransactAsync(transaction);
        Assert.Equal((false, (int?)0), (first.Succeeded, first.FailedCondition));
        Assert.Equal(first.Position.Etag, Assert.Single(first.Results).Etag);
        var second = await Client.TransactAsync(transaction);
        Assert.Equal((true, (int?)null), (second.Succeeded, second.FailedCondition));
        Assert.Equal("2", second.Results[1].Entries[0].Value.ToUtf8String());
        var third = await Client.TransactAsync(transaction);
        Assert.Equal((false, (int?)1), (third.Succeeded, third.FailedCondition));
        Assert.Equal("1", (await Client.GetAsync(_prefix + "a")).Value.ToUtf8String());
    }

    [Fact]
    public async Task Transaction_ThatOnlyReads_TakesNoChange()
    {
        await Client.PutAsync(_prefix + "a", "1");
        var transaction = new KvTransaction().If(KvCondition.Exists(_prefix + "a"));
        transaction.Then.Get(_prefix + "a").Scan(_prefix, _prefix + "z").SetGet(_prefix + "set");
        var read = await Client.TransactAsync(transaction);
        Assert.Equal(_prefix + "a", Assert.Single(read.Results[1].Entries).Key.ToUtf8String());
        Assert.Equal(0, read.Results[2].Number);
        // A leader makes records of its own now and then.
        await Eventually.TrueAsync(
            async () => (await Client.TransactAsync(transaction)).Position.Etag == (await Client.TransactAsync(transaction)).Position.Etag,
            "a transaction has taken no change");
    }

    [Fact]
    public async Task Sequence_GivesEachNumberOnce()
    {
        var options = new KvPutOptions { Sequence = true };
        var first = await Client.PutAsync(_prefix + "job-", "one", options);
        Assert.Equal($"{_prefix}job-{1:D20}", first.Key.ToUtf8String());
        await Client.DeleteAsync(first.Key);
        var second = await Client.PutAsync(_prefix + "job-", "two", options);
        Assert.Equal($"{_prefix}job-{2:D20}", second.Key.ToUtf8String());
        Assert.Equal("two", (await Client.GetAsync(second.Key)).Value.ToUtf8String());
        var write = new KvWrite().WithResults().Put(_prefix + "job-", "three", options).Put(_prefix + "job-", "four", options);
        var results = (await Client.WriteAsync(write)).Results;
        Assert.Equal([3, 4], results.Select(result => int.Parse(result.Entries[0].Key.ToUtf8String()[^20..], CultureInfo.InvariantCulture)));
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(
            () => Client.PutAsync(_prefix + "job-", "five", new KvPutOptions { Sequence = true, KeepExpiry = true })));
    }
}

/// <summary>Over the client in memory.</summary>
public sealed class InMemoryWriteTests(InMemoryStoreUnderTest store) : WriteConformance(store), IClassFixture<InMemoryStoreUnderTest>;

/// <summary>Over a cluster.</summary>
[Collection(ClusterCollection.Name)]
public sealed class ClusterWriteTests(ClusterUnderTest store) : WriteConformance(store);
