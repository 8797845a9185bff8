using System.Net;
using System.Security.Claims;
using KvCluster.Client;
using KvCluster.Replication.Protocol;
using KvCluster.Tests.Node;
using Microsoft.AspNetCore.Authentication;
using Microsoft.AspNetCore.Authentication.Cookies;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.DataProtection;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Options;

namespace KvCluster.Tests.Client;

/// <summary>Users of a program who are signed in by cookies, and whose tickets are in a cluster.</summary>
public sealed class TicketStoreTests
{
    [Fact]
    [Trait("Turn", "1")]
    public async Task User_IsSignedInAndOut_InEveryProcess_WhileNodesStop()
    {
        await using var nodes = await NodeCluster.StartAsync(3, new ReplicationOptions());
        await nodes.LeaderOfAsync(0);
        string[] endpoints = [nodes.AddressOf(1), nodes.AddressOf(2), nodes.AddressOf(3)];
        using var browser = new HttpClient(new SocketsHttpHandler { UseCookies = false }) { Timeout = Eventually.Limit };
        var stopping = new List<Task>();
        await using (var left = await ProgramAsync(endpoints))
        await using (var right = await ProgramAsync(endpoints))
        await using (var hasty = await ProgramAsync(endpoints, TimeSpan.FromSeconds(2)))
        {
            var (ann, bob) = (await SignInAsync(browser, left, "ann"), await SignInAsync(browser, right, "bob"));
            Assert.Equal(("ann", "bob"), (await NameAsync(browser, right, ann), await NameAsync(browser, left, bob)));
            Assert.Equal(2, await left.Client.CountAsync("tickets/"));
            await Eventually.TrueAsync(
                async () =>
                {
                    using var answered = await AskAsync(browser, hasty, "/me", bob);
                    return answered.StatusCode == HttpStatusCode.OK && await answered.Content.ReadAsStringAsync() == "bob";
                },
                "the hasty process has read the keys of data protection");

            stopping.Add(nodes.StopNodeAsync(await nodes.LeaderOfAsync(0)));
            Assert.Equal("ann", await NameAsync(browser, right, ann));
            (await AskAsync(browser, left, "/out", ann)).Dispose();
            Assert.Equal(("nobody", "bob"), (await NameAsync(browser, right, ann), await NameAsync(browser, right, bob)));
            await stopping[0];

            stopping.Add(nodes.StopNodeAsync(await nodes.LeaderOfAsync(0)));
            await stopping[1];
            await Eventually.TrueAsync(
                async () =>
                {
                    using var failed = await AskAsync(browser, hasty, "/me", bob);
                    return failed.StatusCode == HttpStatusCode.InternalServerError;
                },
                "nobody knows whose request it is");
            Assert.Equal("nobody", await NameAsync(browser, hasty, cookie: null));
        }
    }

    [Fact]
    public async Task Ticket_IsProtected_AndEndsWhenItExpires_OrItsUserHasSignedOut()
    {
        await using var node = await NodeCluster.StartAsync(1);
        await node.LeaderOfAsync(0);
        await using var program = await ProgramAsync([node.AddressOf(1)]);
        var options = program.Services.GetRequiredService<IOptionsMonitor<CookieAuthenticationOptions>>();
        var store = options.Get(CookieAuthenticationDefaults.AuthenticationScheme).SessionStore!;
        var name = await store.StoreAsync(TicketOf("ann", expires: null));
        var read = await program.Client.GetAsync($"tickets/{name}", new KvGetOptions { WithLife = true });
        Assert.InRange(read.Life.Left!.Value, TimeSpan.FromDays(13.9), TimeSpan.FromDays(14));
        Assert.Equal(-1, read.Value.Span.IndexOf("ann"u8));
        Assert.Equal("ann", (await store.RetrieveAsync(name))?.Principal.Identity?.Name);

        await store.RenewAsync(name, TicketOf("bob", DateTimeOffset.UtcNow.AddHours(1)));
        Assert.Equal("bob", (await store.RetrieveAsync(name))?.Principal.Identity?.Name);
        read = await program.Client.GetAsync($"tickets/{name}", new KvGetOptions { WithLife = true });
        Assert.InRange(read.Life.Left!.Value, TimeSpan.FromMinutes(50), TimeSpan.FromHours(1));
        await store.RenewAsync(name, TicketOf("bob", DateTimeOffset.UtcNow.AddHours(-1)));
        await Eventually.TrueAsync(async () => await store.RetrieveAsync(name) is null, "the ticket has expired");

        // By a request that was under way while its user has signed out.
        var left = await store.StoreAsync(TicketOf("ann", expires: null));
        await store.RemoveAsync(left);
        await store.RenewAsync(left, TicketOf("ann", expires: null));
        Assert.Null(await store.RetrieveAsync(left));

        // Of keys that are lost.
        await program.Client.PutAsync("tickets/other", "not protected by any key");
        Assert.Null(await store.RetrieveAsync("other"));
        await store.RemoveAsync("other");
        Assert.False((await program.Client.GetAsync("tickets/other")).Found);
    }

    private static AuthenticationTicket TicketOf(string name, DateTimeOffset? expires) => new(
        UserOf(name), new AuthenticationProperties { ExpiresUtc = expires }, CookieAuthenticationDefaults.AuthenticationScheme);

    private static ClaimsPrincipal UserOf(string name) => new(new ClaimsIdentity([new Claim(ClaimTypes.Name, name)], "tests"));

    private static Task<ProgramHost> ProgramAsync(string[] endpoints, TimeSpan? timeout = null) => ProgramHost.StartAsync(
        endpoints,
        static builder =>
        {
            builder.Services.AddDataProtection().SetApplicationName("shop").PersistKeysToKvCluster();
            builder.Services.AddAuthentication(CookieAuthenticationDefaults.AuthenticationScheme).AddCookie();
            builder.Services.AddKvClusterTicketStore();
        },
        static pages =>
        {
            pages.UseAuthentication();
            pages.MapGet("/in", static context => context.SignInAsync(UserOf($"{context.Request.Query["name"]}")));
            pages.MapGet("/me", static context => context.Response.WriteAsync(context.User.Identity?.Name ?? "nobody"));
            pages.MapGet("/out", static context => context.SignOutAsync());
        },
        timeout);

    private static async Task<string> SignInAsync(HttpClient browser, ProgramHost program, string name)
    {
        using var answer = await AskAsync(browser, program, $"/in?name={name}", cookie: null);
        return answer.Headers.GetValues("Set-Cookie").Single().Split(';')[0];
    }

    private static async Task<string> NameAsync(HttpClient browser, ProgramHost program, string? cookie)
    {
        using var answer = await AskAsync(browser, program, "/me", cookie);
        return await answer.EnsureSuccessStatusCode().Content.ReadAsStringAsync();
    }

    private static async Task<HttpResponseMessage> AskAsync(HttpClient browser, ProgramHost program, string page, string? cookie)
    {
        using var request = new HttpRequestMessage(HttpMethod.Get, new Uri(program.Http.BaseAddress!, page));
        if (cookie is not null)
            request.Headers.Add("Cookie", cookie);
        return await browser.SendAsync(request);
    }
}
