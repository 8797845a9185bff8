using KvCluster.Client;

namespace KvCluster.Tests.Conformance;

/// <summary>What ends keys besides a delete: their time, and the sessions that own them.</summary>
public abstract class LifeConformance(ConformanceStore store)
{
    private static readonly TimeSpan Short = TimeSpan.FromMilliseconds(300);
    private static readonly TimeSpan Hour = TimeSpan.FromHours(1);
    private static readonly KvGetOptions WithLife = new() { WithLife = true };

    private readonly string _prefix = store.NewPrefix();

    private IKvClient Client => store.Client;

    [Fact]
    public async Task Key_EndsWhenItsTimeIsOver_AndNotBefore()
    {
        await Client.PutAsync(_prefix + "k", "v", new KvPutOptions { TimeToLive = Hour });
        await Client.PutAsync(_prefix + "short", "v", new KvPutOptions { TimeToLive = Short });
        await store.PassAsync(Short);
        await store.GoneAsync(_prefix + "short");
        var read = await Client.GetAsync(_prefix + "k", WithLife);
        Assert.InRange(read.Life.Left!.Value, Hour - TimeSpan.FromMinutes(10), Hour);
        Assert.Null(read.Life.Owner);
        Assert.Equal(default, (await Client.GetAsync(_prefix + "k")).Life);
    }

    [Fact]
    public async Task Put_DropsTheExpiry_UnlessItIsKept()
    {
        var key = _prefix + "k";
        await Client.PutAsync(key, "1", new KvPutOptions { TimeToLive = Hour });
        await Client.PutAsync(key, "2", new KvPutOptions { KeepExpiry = true });
        Assert.NotNull((await Client.GetAsync(key, WithLife)).Life.Left);
        await Client.IncrementAsync(key);
        Assert.NotNull((await Client.GetAsync(key, WithLife)).Life.Left);
        await Client.PutAsync(key, "3");
        Assert.Equal(default, (await Client.GetAsync(key, WithLife)).Life);
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.PutAsync(key, "4", new KvPutOptions { KeepExpiry = true, TimeToLive = Hour })));
    }

    /// <summary>A touch takes few bytes of a request, and all of the value where it is applied. The client in memory had no bound.</summary>
    [Fact]
    public async Task Touches_OfValuesThatAreTooLargeTogether_AreRefused()
    {
        var key = _prefix + "large";
        await Client.PutAsync(key, new byte[3 << 20]);
        Assert.Equal("RANGE_TOO_LARGE", await Refused.ReasonOfAsync(() => Client.WriteAsync(Touches(6))));
        Assert.Null((await Client.GetAsync(key, WithLife)).Life.Left);
        await Client.WriteAsync(Touches(5));
        Assert.NotNull((await Client.GetAsync(key, WithLife)).Life.Left);
        await Client.DeleteAsync(key);

        KvWrite Touches(int times)
        {
            var write = new KvWrite();
            for (var time = 0; time < times; time++)
                write.Operations.Touch(key, Hour);
            return write;
        }
    }

    [Fact]
    public async Task Touch_SetsTheExpiry_AndKeepsTheEtag()
    {
        var key = _prefix + "k";
        var put = await Client.PutAsync(key, "v");
        Assert.True((await Client.TouchAsync(key, Hour)).Existed);
        var read = await Client.GetAsync(key, WithLife);
        Assert.Equal(put.Etag, read.Etag);
        Assert.NotNull(read.Life.Left);
        Assert.True((await Client.TouchAsync(key, null)).Existed);
        Assert.Null((await Client.GetAsync(key, WithLife)).Life.Left);
        Assert.True((await Client.TouchAsync(key, Short)).Existed);
        await store.PassAsync(Short);
        await store.GoneAsync(key);
        Assert.False((await Client.TouchAsync(key, Hour)).Existed);
        Assert.False((await Client.GetAsync(key)).Found);
    }

    [Fact]
    public async Task Session_TakesItsKeysWithIt_WhenItEnds()
    {
        var session = await Client.Sessions.OpenAsync(_prefix, Hour);
        await Client.PutAsync(_prefix + "owned", "v", new KvPutOptions { Owner = session });
        await Client.PutAsync(_prefix + "kept", "v", new KvPutOptions { Owner = session });
        await Client.PutAsync(_prefix + "kept", "v", new KvPutOptions { KeepOwner = true });
        await Client.PutAsync(_prefix + "taken", "v", new KvPutOptions { Owner = session });
        await Client.PutAsync(_prefix + "taken", "v");
        Assert.Equal(session.Opened, (await Client.GetAsync(_prefix + "owned", WithLife)).Life.Owner);
        Assert.Null((await Client.GetAsync(_prefix + "taken", WithLife)).Life.Owner);
        Assert.Equal(2ul, await Client.Sessions.EndAsync(session));
        var left = await Client.ScanAsync(new KvScan { Prefix = _prefix }).ToListAsync();
        Assert.Equal(_prefix + "taken", Assert.Single(left).Key.ToUtf8String());
        Assert.Null(await Client.Sessions.EndAsync(session));
        Assert.Equal(TimeSpan.Zero, await Client.Sessions.KeepAliveAsync(session));
        Assert.Equal("NO_OWNER", await Refused.ReasonOfAsync(() => Client.PutAsync(_prefix + "late", "v", new KvPutOptions { Owner = session })));
    }

    [Fact]
    public async Task Session_ThatIsNotKeptAlive_Ends()
    {
        // On a busy machine a session of a second ends before it owns a key.
        await Eventually.LongEnoughAsync(TimeSpan.FromSeconds(1), async lifetime =>
        {
            var session = await Client.Sessions.OpenAsync(_prefix, lifetime);
            try
            {
                await Client.PutAsync(_prefix + "owned", "v", new KvPutOptions { Owner = session });
            }
            catch (KvException failure) when (failure.Reason == "NO_OWNER")
            {
                return false;
            }
            var left = await Client.Sessions.KeepAliveAsync(session);
            if (left == TimeSpan.Zero)
                return false;
            Assert.InRange(left, TimeSpan.FromMilliseconds(1), lifetime);
            await store.PassAsync(lifetime);
            await store.GoneAsync(_prefix + "owned");
            Assert.Equal(TimeSpan.Zero, await Client.Sessions.KeepAliveAsync(session));
            return true;
        });
    }

    [Fact]
    public async Task Session_OfAnotherShard_OrWithALifetimeBeyondTheLimits_IsRefused()
    {
        var session = await Client.Sessions.OpenAsync("z" + _prefix, Hour);
        Assert.Equal("NO_OWNER", await Refused.ReasonOfAsync(() => Client.PutAsync(_prefix + "k", "v", new KvPutOptions { Owner = session })));
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.Sessions.OpenAsync(_prefix, TimeSpan.FromMilliseconds(999))));
        Assert.Equal("BAD_REQUEST", await Refused.ReasonOfAsync(() => Client.Sessions.OpenAsync(_prefix, TimeSpan.FromHours(25))));
        await Client.Sessions.EndAsync(session);
    }
}

/// <summary>Over the client in memory.</summary>
public sealed class InMemoryLifeTests(InMemoryStoreUnderTest store) : LifeConformance(store), IClassFixture<InMemoryStoreUnderTest>;

/// <summary>Over a cluster.</summary>
[Collection(ClusterCollection.Name)]
public sealed class ClusterLifeTests(ClusterUnderTest store) : LifeConformance(store);
