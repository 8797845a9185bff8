using System.Text;
using KvCluster.Client;

namespace KvCluster.Tests.Conformance;

/// <summary>Calls on single keys: values, etags, conditions, numbers, neighbours, ranges.</summary>
public abstract class KeyConformance(ConformanceStore store)
{
    private readonly string _prefix = store.NewPrefix();

    private IKvClient Client => store.Client;

    [Fact]
    public async Task Put_IsReadBack_WithTheEtagOfTheChange()
    {
        var key = _prefix + "k";
        Assert.False((await Client.GetAsync(key)).Found);
        var first = await Client.PutAsync(key, "one");
        var second = await Client.PutAsync(key, "two");
        Assert.True(second.Etag > first.Etag);
        var read = await Client.GetAsync(key);
        Assert.Equal((true, "two", second.Etag), (read.Found, read.Value.ToUtf8String(), read.Etag));
        Assert.True(read.Position.Etag >= second.Etag);
        Assert.Equal(second.Position.Shard, read.Position.Shard);
        Assert.Equal(second.Position.Lineage, read.Position.Lineage);
        Assert.True((await Client.PutAsync(_prefix + "empty", default)).Etag > second.Etag);
        Assert.True((await Client.GetAsync(_prefix + "empty")).Found);
    }

    [Fact]
    public async Task Delete_TellsWhetherTheKeyExisted_AndTakesAChangeEitherWay()
    {
        var put = await Client.PutAsync(_prefix + "k", "v");
        var deleted = await Client.DeleteAsync(_prefix + "k");
        Assert.True(deleted.Existed);
        Assert.True(deleted.Position.Etag > put.Etag);
        var again = await Client.DeleteAsync(_prefix + "k");
        Assert.False(again.Existed);
        Assert.True(again.Position.Etag > deleted.Position.Etag);
        Assert.False((await Client.GetAsync(_prefix + "k")).Found);
    }

    /// <summary>A store that kept the caller's memory would change with it.</summary>
    [Fact]
    public async Task Memory_OfACall_CanBeUsedAgainAfterwards()
    {
        byte[] key = Encoding.UTF8.GetBytes(_prefix + "k"), value = [1, 2, 3];
        await Client.PutAsync(key, value);
        (key[^1], value[0]) = ((byte)'x', 9);
        var read = await Client.GetAsync(_prefix + "k");
        Assert.Equal([1, 2, 3], read.Value.ToArray());
        Assert.False((await Client.GetAsync(_prefix + "x")).Found);
    }

    [Fact]
    public async Task Conditions_HoldOrRefuseTheChange()
    {
        var key = _prefix + "k";
        KvCondition[] ofAbsent = [KvCondition.Absent(), KvCondition.EtagEquals(default)];
        KvCondition[] notOfAbsent =
            [KvCondition.Exists(), KvCondition.ValueEquals(""), KvCondition.Etag(KvRelation.NotEqual, new Etag(9, 9)), KvCondition.Value(KvRelation.Less, "z")];
        foreach (var condition in notOfAbsent)
            Assert.Equal("CONDITION_FAILED", await Refused.ReasonOfAsync(() => Client.PutAsync(key, "x", condition)));
        foreach (var condition in ofAbsent)
        {
            await Client.PutAsync(key, "b", condition);
            await Client.DeleteAsync(key);
        }
        var etag = (await Client.PutAsync(key, "b")).Etag;
        KvCondition[] hold =
        [
            KvCondition.Exists(), KvCondition.EtagEquals(etag), KvCondition.ValueEquals("b"), KvCondition.Exists(key),
            KvCondition.Etag(KvRelation.Equal, etag), KvCondition.Etag(KvRelation.Less, new Etag(etag.Epoch, etag.Change + 1)),
            KvCondition.Etag(KvRelation.Greater, new Etag(etag.Epoch, etag.Change - 1)), KvCondition.Etag(KvRelation.NotEqual, default),
            KvCondition.Value(KvRelation.Equal, "b"), KvCondition.Value(KvRelation.Less, "c"), KvCondition.Value(KvRelation.Greater, "a"),
            KvCondition.Value(KvRelation.NotEqual, "a"),
        ];
        KvCondition[] fail =
        [
            KvCondition.Absent(), KvCondition.EtagEquals(default), KvCondition.EtagEquals(new Etag(etag.Epoch, etag.Change - 1)),
            KvCondition.ValueEquals("a"), KvCondition.Absent(key), KvCondition.Exists(_prefix + "other"),
            KvCondition.Etag(KvRelation.Less, etag), KvCondition.Etag(KvRelation.Greater, etag), KvCondition.Etag(KvRelation.NotEqual, etag),
            KvCondition.Value(KvRelation.Less, "b"), KvCondition.Value(KvRelation.Greater, "b"), KvCondition.Value(KvRelation.Equal, "bb"),
        ];
        foreach (var condition in fail)
            Assert.Equal("CONDITION_FAILED", await Refused.ReasonOfAsync(() => Client.DeleteAsync(key, condition)));
        Assert.Equal("b", (await Client.GetAsync(key)).Value.ToUtf8String());
        foreach (var condition in hold)
            await Client.TouchAsync(key, null, condition);
    }

    [Fact]
    public async Task ConditionThatFails_IsNamed_WithTheStateThatItWasEvaluatedOn()
    {
        var put = await Client.PutAsync(_prefix + "k", "v");
        var write = new KvWrite().If(KvCondition.Exists(_prefix + "k")).If(KvCondition.Absent(_prefix + "k")).Put(_prefix + "other", "v");
        var failure = await Assert.ThrowsAsync<KvConditionFailedException>(() => Client.WriteAsync(write).AsTask());
        Assert.Equal((1, ChangeOutcome.NotApplied, put.Position.Shard), (failure.ConditionIndex, failure.Outcome, failure.Position.Shard));
        Assert.True(failure.Position.Etag >= put.Etag);
        Assert.False((await Client.GetAsync(_prefix + "other")).Found);
    }

    [Fact]
    public async Task Try_OnAConditionThatFails_TellsWhatItsKeyHas()
    {
        var (key, number, other) = (_prefix + "k", _prefix + "n", _prefix + "other");
        var made = await Client.TryPutAsync(key, "1", KvCondition.Absent());
        Assert.True(made.Succeeded);
        var failed = FailedOf(await Client.TryPutAsync(key, "2", KvCondition.Absent()));
        Assert.Equal((0, key, true), (failed.Index, failed.Key.ToUtf8String(), failed.Found));
        Assert.Equal((made.Result.Etag, true), (failed.Etag, failed.Value.IsEmpty));
        var options = new KvPutOptions
        {
            Condition = KvCondition.Absent(), WithPresentValue = true, TimeToLive = TimeSpan.FromHours(1), Timeout = Eventually.Limit,
        };
        Assert.Equal("1", FailedOf(await Client.TryPutAsync(key, "2", options)).Value.ToUtf8String());
        Assert.Equal(made.Result.Etag, FailedOf(await Client.TryDeleteAsync(key, KvCondition.Absent())).Etag);
        Assert.Equal(5, (await Client.TryIncrementAsync(number, 5, KvCondition.Absent())).Result.Number);
        Assert.False((await Client.TryIncrementAsync(number, 5, KvCondition.Absent())).Succeeded);

        var write = new KvWrite().If(KvCondition.Exists(key)).If(KvCondition.Exists(other)).Put(other, "v");
        failed = FailedOf(await Client.TryWriteAsync(write));
        Assert.Equal((1, other, false), (failed.Index, failed.Key.ToUtf8String(), failed.Found));
        failed = FailedOf(await Client.TryWriteAsync(new KvWrite().If(KvCondition.ValueEquals("2", key)).Put(other, "v").WithPresentValue()));
        Assert.Equal("1", failed.Value.ToUtf8String());
        failed = FailedOf(await Client.TryWriteAsync(new KvWrite().If(KvCondition.SetHas(key, "m")).Put(other, "v").WithPresentValue()));
        Assert.Equal((key, false, true), (failed.Key.ToUtf8String(), failed.Found, failed.Value.IsEmpty));
        Assert.False((await Client.GetAsync(other)).Found);
        Assert.True((await Client.TryDeleteAsync(key, KvCondition.EtagEquals(made.Result.Etag))).Result.Existed);
    }

    [Fact]
    public async Task RangeCondition_HoldsUntilAKeyOfTheRangeChanges()
    {
        await Client.PutAsync(_prefix + "r/1", "v");
        var last = (await Client.PutAsync(_prefix + "r/2", "v")).Etag;
        var (start, end) = (_prefix + "r/", _prefix + "r0");
        var other = _prefix + "other";
        await Client.PutAsync(other, "1", KvCondition.Range(start, end, 2, last));
        await Client.PutAsync(other, "2", KvCondition.Range(start, end, null, last));
        await Client.PutAsync(other, "3", KvCondition.Range(_prefix + "s/", _prefix + "s0", 0, default(Etag)));
        Assert.Equal("CONDITION_FAILED", await Refused.ReasonOfAsync(() => Client.PutAsync(other, "4", KvCondition.Range(start, end, 3))));
        await Client.PutAsync(_prefix + "r/1", "changed");
        Assert.Equal("CONDITION_FAILED", await Refused.ReasonOfAsync(() => Client.PutAsync(other, "4", KvCondition.Range(start, end, 2, last))));
        await Client.PutAsync(other, "5", KvCondition.Range(start, end, 2));
    }

    [Fact]
    public async Task Keys_BeyondTheLimits_AreRefused()
    {
        var longest = _prefix + new string('k', 2_048 - _prefix.Length);
        await Client.PutAsync(longest, "v");
        Assert.True((await Client.GetAsync(longest)).Found);
        Assert.Equal("KEY_TOO_LONG", await Refused.ReasonOfAsync(() => Client.PutAsync(longest + "k", "v")));
        Assert.Equal("KEY_EMPTY", await Refused.ReasonOfAsync(() => Client.PutAsync("", "v")));
        Assert.Equal("KEY_EMPTY", await Refused.ReasonOfAsync(() => Client.GetAsync("")));
        await Assert.ThrowsAsync<KvInvalidRequestException>(() => Client.DeleteAsync("").AsTask());
    }

    [Fact]
    public async Task Increment_CountsInDecimalText_AndRefusesWhatIsNoNumber()
    {
        var key = _prefix + "n";
        Assert.Equal(1, (await Client.IncrementAsync(key)).Number);
        var third = await Client.IncrementAsync(key, 41);
        Assert.Equal(42, third.Number);
        var read = await Client.GetAsync(key);
        Assert.Equal(("42", third.Position.Etag), (read.Value.ToUtf8String(), read.Etag));
        Assert.Equal(-8, (await Client.IncrementAsync(key, -50)).Number);
        await Client.PutAsync(key, KvValue.FromInt64(long.MaxValue));
        Assert.Equal("NUMBER_OVERFLOW", await Refused.ReasonOfAsync(() => Client.IncrementAsync(key)));
        await Client.PutAsync(key, "many");
        Assert.Equal("NOT_A_NUMBER", await Refused.ReasonOfAsync(() => Client.IncrementAsync(key)));
        Assert.Equal("many", (await Client.GetAsync(key)).Value.ToUtf8String());
        Assert.Equal("CONDITION_FAILED", await Refused.ReasonOfAsync(() => Client.IncrementAsync(key, 1, KvCondition.Absent())));
    }

    [Fact]
    public async Task GetMany_AnswersInTheOrderOfTheKeys_OverShards()
    {
        var far = $"z{_prefix}2";
        await Client.PutAsync(_prefix + "1", "one");
        await Client.PutAsync(far, "two");
        var read = await Client.GetManyAsync([far, _prefix + "none", _prefix + "1", far]);
        Assert.Equal(["two", "", "one", "two"], read.Select(static result => result.Value.ToUtf8String()));
        Assert.Equal([true, false, true, true], read.Select(static result => result.Found));
        Assert.NotEqual(read[0].Position.Shard, read[2].Position.Shard);
        Assert.Equal(read[0].Position.Shard, await Client.FindShardAsync(far));
        Assert.Empty(await Client.GetManyAsync([]));
    }

    [Theory]
    [InlineData(KvNearest.Floor, "3", "3")]
    [InlineData(KvNearest.Floor, "4", "3")]
    [InlineData(KvNearest.Floor, "0", null)]
    [InlineData(KvNearest.Lower, "3", "1")]
    [InlineData(KvNearest.Lower, "1", null)]
    [InlineData(KvNearest.Ceiling, "3", "3")]
    [InlineData(KvNearest.Ceiling, "2", "3")]
    [InlineData(KvNearest.Ceiling, "6", null)]
    [InlineData(KvNearest.Higher, "3", "5")]
    [InlineData(KvNearest.Higher, "5", null)]
    public async Task Nearest_FindsTheNeighbour_WithinThePrefix(KvNearest nearest, string key, string? found)
    {
        foreach (var one in (string[])["1", "3", "5"])
            await Client.PutAsync(_prefix + one, one);
        var read = await Client.GetNearestAsync(_prefix + key, nearest, _prefix);
        Assert.Equal(found is not null, read.Found);
        Assert.Equal(found is null ? "" : _prefix + found, read.Key.ToUtf8String());
        Assert.Equal(found ?? "", read.Value.ToUtf8String());
    }

    [Fact]
    public async Task Nearest_GoesOnInTheNeighbouringShard()
    {
        var (low, high) = await store.ClearBorderAsync();
        await Client.PutAsync(high, "v");
        Assert.Equal(high, (await Client.GetNearestAsync(low, KvNearest.Ceiling)).Key.ToUtf8String());
        Assert.False((await Client.GetNearestAsync(low, KvNearest.Ceiling, "l")).Found);
        await Client.PutAsync(low, "v");
        Assert.Equal(low, (await Client.GetNearestAsync(high, KvNearest.Lower)).Key.ToUtf8String());
    }

    [Fact]
    public async Task DeleteRange_RemovesTheKeysOfTheRange_AndNoOthers()
    {
        foreach (var key in (string[])["1", "2", "3", "4"])
            await Client.PutAsync(_prefix + key, "v");
        Assert.Equal(2ul, (await Client.DeleteRangeAsync(new KvRange { Start = _prefix + "2", End = _prefix + "4" })).Deleted);
        Assert.Equal(2, await Client.CountAsync(_prefix));
        Assert.Equal(2ul, (await Client.DeleteRangeAsync(new KvRange { Prefix = _prefix })).Deleted);
        Assert.Equal(0, await Client.CountAsync(_prefix));
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.DeleteRangeAsync(new KvRange())));
    }

    [Fact]
    public async Task Call_ThatIsCancelled_Throws()
    {
        using var cancelled = new CancellationTokenSource();
        await cancelled.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => Client.PutAsync(_prefix + "k", "v", cancellationToken: cancelled.Token).AsTask());
    }

    [Fact]
    public async Task Ping_IsAnswered() => Assert.True(await Client.PingAsync() >= TimeSpan.Zero);

    private static KvFailedCondition FailedOf<T>(KvTryResult<T> tried) => Assert.IsType<KvFailedCondition>(tried.Failed);
}

/// <summary>Over the client in memory.</summary>
public sealed class InMemoryKeyTests(InMemoryStoreUnderTest store) : KeyConformance(store), IClassFixture<InMemoryStoreUnderTest>;

/// <summary>Over a cluster.</summary>
[Collection(ClusterCollection.Name)]
public sealed class ClusterKeyTests(ClusterUnderTest store) : KeyConformance(store);
