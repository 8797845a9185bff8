using System.Net;
using KvCluster.Client;
using KvCluster.Replication.Protocol;
using KvCluster.Tests.Node;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.DataProtection;
using Microsoft.AspNetCore.DataProtection.KeyManagement;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.Tests.Client;

/// <summary>Processes of a program that read what each of them has protected, by keys in a cluster.</summary>
public sealed class DataProtectionTests
{
    private const string Keys = "dataprotection/e/key-";

    /// <summary>Each of the processes that start together finds no key. Each created one, and did not know those of the others for a day.</summary>
    [Fact]
    [Trait("Turn", "6")]
    public async Task Processes_ReadWhatEachHasProtected_WhileNodesStop()
    {
        await using var nodes = await NodeCluster.StartAsync(3, new ReplicationOptions());
        await nodes.LeaderOfAsync(0);
        string[] endpoints = [nodes.AddressOf(1), nodes.AddressOf(2), nodes.AddressOf(3)];
        var stopping = new List<Task>();
        var processes = await Task.WhenAll(Enumerable.Range(0, 4).Select(_ => ProgramAsync(endpoints)));
        try
        {
            var cookies = await Task.WhenAll(processes.Select(static process => process.GetAsync("/protect")));
            Assert.Equal(1, await processes[0].Client.CountAsync(Keys));
            await AssertReadAsync(processes, cookies);

            stopping.Add(nodes.StopNodeAsync(await nodes.LeaderOfAsync(0)));
            await AssertReadAsync(processes, cookies);
            await using (var late = await ProgramAsync(endpoints))
                await AssertReadAsync([late], cookies);
            await stopping[0];

            stopping.Add(nodes.StopNodeAsync(await nodes.LeaderOfAsync(0)));
            await stopping[1];
            await AssertReadAsync(processes, [await processes[3].GetAsync("/protect"), .. cookies]);
        }
        finally
        {
            foreach (var process in processes)
                await process.DisposeAsync();
        }
    }

    [Fact]
    public async Task Key_IsCreated_AfterTheLockOfAProcessThatHasEndedIsGone_AndARevocationHolds()
    {
        await using var node = await NodeCluster.StartAsync(1);
        await node.LeaderOfAsync(0);
        await using (var ended = new KvClient(new KvClientOptions { Endpoints = [node.AddressOf(1)], Timeout = Eventually.Limit }))
            await ended.PutAsync("dataprotection/lock", default, new KvPutOptions { TimeToLive = TimeSpan.FromSeconds(1) });
        await using var first = await ProgramAsync([node.AddressOf(1)]);
        var cookie = await first.GetAsync("/protect");
        Assert.Equal(1, await first.Client.CountAsync(Keys));
        await Eventually.TrueAsync(async () => !(await first.Client.GetAsync("dataprotection/lock")).Found, "the lock is given back");

        var manager = first.Services.GetRequiredService<IKeyManager>();
        // One that nobody else has created meanwhile.
        var next = manager.CreateNewKey(DateTimeOffset.UtcNow.AddDays(80), DateTimeOffset.UtcNow.AddDays(170));
        Assert.Equal(2, await first.Client.CountAsync(Keys));
        await using var second = await ProgramAsync([node.AddressOf(1)]);
        var another = second.Services.GetRequiredService<IKeyManager>();
        Assert.Contains(next.KeyId, another.GetAllKeys().Select(static key => key.KeyId));
        await AssertReadAsync([second], [cookie]);

        // One that another process has created since this one has read the keys.
        var created = manager.CreateNewKey(DateTimeOffset.UtcNow.AddDays(160), DateTimeOffset.UtcNow.AddDays(250));
        Assert.Equal(created.KeyId, another.CreateNewKey(DateTimeOffset.UtcNow.AddDays(160), DateTimeOffset.UtcNow.AddDays(250)).KeyId);
        Assert.Equal(3, await first.Client.CountAsync(Keys));
        another.RevokeKey(created.KeyId, "lost");
        Assert.True(manager.GetAllKeys().Single(key => key.KeyId == created.KeyId).IsRevoked);
    }

    [Fact]
    public async Task WithoutACluster_NothingIsProtected()
    {
        await using var alone = await ProgramAsync(["http://127.0.0.1:1"], TimeSpan.FromMilliseconds(300));
        using var answer = await alone.Http.GetAsync(new Uri("/protect", UriKind.Relative));
        Assert.Equal(HttpStatusCode.InternalServerError, answer.StatusCode);
    }

    private static async Task AssertReadAsync(IEnumerable<ProgramHost> processes, IReadOnlyList<string> cookies)
    {
        foreach (var process in processes)
        {
            foreach (var cookie in cookies)
                Assert.Equal("text", await process.GetAsync($"/read?text={cookie}"));
        }
    }

    private static Task<ProgramHost> ProgramAsync(string[] endpoints, TimeSpan? timeout = null) => ProgramHost.StartAsync(
        endpoints,
        static builder => builder.Services.AddDataProtection().SetApplicationName("shop").PersistKeysToKvCluster(),
        static pages =>
        {
            pages.MapGet("/protect", static context => context.Response.WriteAsync(ProtectorOf(context).Protect("text")));
            pages.MapGet("/read", static context => context.Response.WriteAsync(ProtectorOf(context).Unprotect($"{context.Request.Query["text"]}")));
        },
        timeout);

    private static IDataProtector ProtectorOf(HttpContext context) => context.RequestServices.GetDataProtector("cookies");
}
