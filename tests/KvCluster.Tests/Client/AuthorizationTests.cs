using System.Collections.Concurrent;
using System.Net;
using System.Security.Cryptography.X509Certificates;
using KvCluster.Client;
using KvCluster.Client.Transport;
using KvCluster.Tests.ServiceDefaults.Security;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.Logging;

namespace KvCluster.Tests.Client;

/// <summary>The header by which a program authorizes itself at what stands before a cluster.</summary>
public sealed class AuthorizationTests
{
    [Theory]
    [InlineData("https://kv:7400/kvcluster.v1.Kv/Exchange", "Bearer 1", "Bearer 1 of https://kv:7400/")]
    [InlineData("https://kv:7400/kvcluster.v1.Kv/Exchange", null, "none of https://kv:7400/")]
    [InlineData("http://kv:7400/kvcluster.v1.Kv/Exchange", "Bearer 1", "none")]
    public async Task Header_IsAskedForAndSent_OverTlsOnly(string address, string? value, string expected)
    {
        var asked = "";
        var last = new LastRequest();
        using var invoker = new HttpMessageInvoker(new AuthorizationHandler(last, (to, _) =>
        {
            asked = $" of {to}";
            return ValueTask.FromResult(value);
        }));
        using var request = new HttpRequestMessage(HttpMethod.Post, address);
        using var response = await invoker.SendAsync(request, CancellationToken.None);
        Assert.Equal(expected, last.Authorization + asked);
    }

    /// <summary>A server that answers nothing, and notes what it is asked. Each kind of request has a connection of its own.</summary>
    [Fact]
    public async Task Requests_OfEachKind_HaveTheHeader()
    {
        using var authority = CertificateFolder.Authority();
        var issued = authority.Issue("server", ["127.0.0.1"], CertificateFolder.Now.AddDays(-1), CertificateFolder.Now.AddDays(1));
        using var certificate = X509Certificate2.CreateFromPem(issued.CertificatePem, issued.KeyPem);
        var seen = new ConcurrentDictionary<string, string>();
        var builder = WebApplication.CreateBuilder();
        builder.Logging.ClearProviders();
        builder.WebHost.ConfigureKestrel(kestrel => kestrel.Listen(IPAddress.Loopback, 0, listen =>
        {
            listen.Protocols = HttpProtocols.Http2;
            listen.UseHttps(certificate);
        }));
        await using var server = builder.Build();
        server.Run(async context =>
        {
            seen[context.Request.Path.Value ?? ""] = context.Request.Headers.Authorization.ToString();
            await Task.Delay(Timeout.Infinite, context.RequestAborted).ConfigureAwait(ConfigureAwaitOptions.SuppressThrowing);
        });
        await server.StartAsync();
        await using var client = new KvClient(new KvClientOptions
        {
            Endpoints = [server.Urls.Single()],
            Gateway = true,
            Timeout = Eventually.Limit,
            Tls = new KvTlsOptions { ValidateServer = static (_, _, _, _) => true },
            Authorization = static (_, _) => ValueTask.FromResult<string?>("Bearer token"),
        });
        using var ended = new CancellationTokenSource();
        Task[] calls = [client.GetAsync("k", cancellationToken: ended.Token).AsTask(), client.Admin.GetStatusAsync(cancellationToken: ended.Token)];
        string[] paths = ["/kvcluster.v1.Cluster/GetStatus", "/kvcluster.v1.Cluster/WatchShards", "/kvcluster.v1.Kv/Exchange"];
        await Eventually.TrueAsync(() => paths.All(seen.ContainsKey), "each kind of request has come");
        Assert.All(paths, path => Assert.Equal("Bearer token", seen[path]));
        await ended.CancelAsync();
        await Assert.ThrowsAnyAsync<Exception>(() => Task.WhenAll(calls));
    }

    [Fact]
    public void Authorization_WithAnAddressWithoutTls_IsRefused() => Assert.Contains(
        "Authorization is sent to https addresses only",
        Assert.Throws<ArgumentException>(() => new KvClient(
            new KvClientOptions { Endpoints = ["https://a:1", "http://b:1"], Authorization = static (_, _) => default })).Message,
        StringComparison.Ordinal);

    private sealed class LastRequest : HttpMessageHandler
    {
        public string Authorization { get; private set; } = "";

        protected override Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellationToken)
        {
            Authorization = request.Headers.TryGetValues("authorization", out var values) ? values.Single() : "none";
            return Task.FromResult(new HttpResponseMessage());
        }
    }
}
