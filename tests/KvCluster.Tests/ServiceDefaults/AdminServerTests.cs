using System.Net;
using KvCluster.ServiceDefaults.Admin;
using Microsoft.AspNetCore.Http;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>The admin port over HTTP/1.1, and the health that a process reports there.</summary>
public sealed class AdminServerTests : IAsyncLifetime
{
    private readonly ProcessHealth _health = new();
    private readonly HttpClient _http = new();
    private AdminServer _admin = null!;

    public async Task InitializeAsync()
    {
        _admin = await AdminServer.StartAsync(new Uri("http://127.0.0.1:0"), NullLoggerFactory.Instance, _health.Endpoints, CancellationToken.None);
        _http.BaseAddress = new Uri(_admin.Address);
    }

    public async Task DisposeAsync()
    {
        _http.Dispose();
        await _admin.DisposeAsync();
    }

    [Fact]
    public async Task Health_OfAProcess_FollowsItThroughItsLife()
    {
        await CheckAsync(alive: "alive", started: "it is starting", ready: "it is starting");
        _health.Waits("it waits for\nsomething");
        await CheckAsync(alive: "alive", started: "it waits for something", ready: "it waits for something");
        string? unready = "shard 3 has no leader";
        _health.Started(() => unready);
        await CheckAsync(alive: "alive", started: "started", ready: "shard 3 has no leader");
        unready = null;
        await CheckAsync(alive: "alive", started: "started", ready: "ready");
        _health.Drains(true);
        await CheckAsync(alive: "alive", started: "started", ready: "it is draining");
        _health.Drains(false);
        await CheckAsync(alive: "alive", started: "started", ready: "ready");
        _health.Stops();
        await CheckAsync(alive: "alive", started: "started", ready: "it is stopping");
        _health.Breaks("the disk failed");
        await CheckAsync(alive: "the disk failed", started: "the disk failed", ready: "the disk failed");
    }

    [Fact]
    public async Task Endpoint_IsFoundByMethodAndTheLongestPath()
    {
        _admin.Add([Says("GET", "/api/*", "all"), Says("GET", "/api/nodes", "nodes"), Says("POST", "/api/nodes", "posted"), Says("GET", "/", "page")]);
        Assert.Equal("nodes\n", await _http.GetStringAsync("/api/nodes"));
        Assert.Equal("all\n", await _http.GetStringAsync("/api/shards/3?detail=1"));
        Assert.Equal("page\n", await _http.GetStringAsync("/"));
        using var posted = await _http.PostAsync("/api/nodes", new StringContent("x"));
        Assert.Equal("posted\n", await posted.Content.ReadAsStringAsync());
        using var deleted = await _http.DeleteAsync("/api/nodes");
        Assert.Equal(HttpStatusCode.MethodNotAllowed, deleted.StatusCode);
        using var missing = await _http.GetAsync("/elsewhere");
        Assert.Equal(HttpStatusCode.NotFound, missing.StatusCode);
        _admin.Add([Says("GET", "/api/nodes", "newer")]);
        Assert.Equal("newer\n", await _http.GetStringAsync("/api/nodes"));
    }

    [Fact]
    public async Task Endpoint_ThatThrows_AnswersWithAnError()
    {
        _admin.Add([new AdminEndpoint("GET", "/broken", _ => throw new InvalidOperationException("no"))]);
        using var answer = await _http.GetAsync("/broken");
        Assert.Equal(HttpStatusCode.InternalServerError, answer.StatusCode);
        Assert.Equal("alive\n", await _http.GetStringAsync("/health/alive"));
    }

    /// <summary>
    /// A browser sends its cookies for a host to all ports of it. The console refused browsers with more than 8 KiB of headers, the limit of a client
    /// port.
    /// </summary>
    [Fact]
    public async Task Headers_OfABrowserWithManyCookies_AreAccepted()
    {
        using var request = new HttpRequestMessage(HttpMethod.Get, "/health/alive");
        request.Headers.Add("Cookie", "c=" + new string('c', 24 << 10));
        using var answer = await _http.SendAsync(request);
        Assert.Equal(HttpStatusCode.OK, answer.StatusCode);
    }

    [Fact]
    public async Task Ask_ReturnsTheAnswerOfTheProcess()
    {
        Assert.Equal((false, "it is starting"), await AnswerOfAsync(new Uri(_admin.Address)));
        _health.Started(() => null);
        Assert.Equal((true, "ready"), await AnswerOfAsync(new Uri(_admin.Address)));
        // The address as an image's settings have it, and a name, by which a server listens at all addresses of its machine.
        foreach (var host in (string[])["0.0.0.0", "name.invalid"])
            Assert.Equal((true, "ready"), await AnswerOfAsync(new UriBuilder(_admin.Address) { Host = host }.Uri));
    }

    [Fact]
    public async Task Ask_NobodyListening_ReportsIt()
    {
        var address = new Uri(_admin.Address);
        await _admin.DisposeAsync();
        var (isReady, line) = await HealthQuestion.AskAsync(address, CancellationToken.None);
        Assert.False(isReady);
        Assert.StartsWith($"no answer from {address}health/ready", line, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Start_OnAPortInUse_ThrowsAnIOException() =>
        await Assert.ThrowsAnyAsync<IOException>(() => AdminServer.StartAsync(new Uri(_admin.Address), NullLoggerFactory.Instance, [], CancellationToken.None));

    /// <summary>An address reserved for documentation, which no machine has.</summary>
    [Fact]
    public async Task Start_OnAnAddressOfAnotherMachine_NamesIt()
    {
        var failure = await Assert.ThrowsAnyAsync<IOException>(
            () => AdminServer.StartAsync(new Uri("http://192.0.2.1:7480"), NullLoggerFactory.Instance, [], CancellationToken.None));
        Assert.StartsWith("Cannot listen at http://192.0.2.1:7480: ", failure.Message, StringComparison.Ordinal);
    }

    // The question gives up after some seconds, because the next one follows soon. The tests wait that long, too.
    private static async Task<(bool IsReady, string Line)> AnswerOfAsync(Uri admin)
    {
        var answer = (IsReady: false, Line: "");
        await Eventually.TrueAsync(
            () => !(answer = HealthQuestion.AskAsync(admin, CancellationToken.None).Result).Line.StartsWith("no answer", StringComparison.Ordinal),
            "an answer");
        return answer;
    }

    private static AdminEndpoint Says(string method, string path, string text) =>
        new(method, path, context => AdminText.WriteAsync(context, StatusCodes.Status200OK, text));

    private async Task CheckAsync(string alive, string started, string ready)
    {
        foreach (var (question, expected) in ((string, string)[])[("alive", alive), ("started", started), ("ready", ready)])
        {
            using var answer = await _http.GetAsync($"/health/{question}");
            Assert.Equal(
                (question == expected ? HttpStatusCode.OK : HttpStatusCode.ServiceUnavailable, expected + "\n"),
                (answer.StatusCode, await answer.Content.ReadAsStringAsync()));
        }
    }
}
