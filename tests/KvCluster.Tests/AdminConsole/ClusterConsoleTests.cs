using System.Buffers.Text;
using System.Net;
using System.Net.Http.Json;
using System.Text;
using System.Text.Json;
using System.Text.RegularExpressions;
using KvCluster.AdminConsole;
using KvCluster.Client;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.Tests.Client;
using KvCluster.Tests.Node;
using KvCluster.Tls;
using KvCluster.V1;
using Microsoft.Extensions.Logging.Abstractions;
using Role = KvCluster.V1.ReplicaStatus.Types.Role;

namespace KvCluster.Tests.AdminConsole;

/// <summary>The console's calls, as made by a browser and by a caller without one.</summary>
public sealed class ClusterConsoleTests : IAsyncLifetime
{
    private const string Token = "a-token-of-enough-characters";

    private readonly TemporaryDirectory _directory = new();
    private readonly List<IAsyncDisposable> _running = [];
    private FakeCluster _cluster = null!;
    private KvClient _client = null!;

    public async Task InitializeAsync()
    {
        _cluster = await FakeCluster.StartAsync(3, "g", "p");
        _client = _cluster.Connect();
    }

    public async Task DisposeAsync()
    {
        foreach (var part in Enumerable.Reverse(_running))
            await part.DisposeAsync();
        await _client.DisposeAsync();
        await _cluster.DisposeAsync();
        _directory.Dispose();
    }

    [Fact]
    public async Task PageAndItsFiles_AreServedWithAStrictPolicyAndNotCached()
    {
        using var http = await StartAsync();
        var page = await http.GetStringAsync("/");
        var files = Regex.Matches(page, "(?:href|src)=\"(/[^\"]+)\"").Select(match => match.Groups[1].Value).ToList();
        Assert.Contains("/console/console.js", files);
        foreach (var path in files.Prepend("/").Append("/api/overview"))
        {
            using var answer = await http.GetAsync(path);
            Assert.Equal(HttpStatusCode.OK, answer.StatusCode);
            var policy = Assert.Single(answer.Headers.GetValues("Content-Security-Policy"));
            Assert.Contains("default-src 'none'", policy, StringComparison.Ordinal);
            Assert.DoesNotContain("unsafe", policy, StringComparison.Ordinal);
            Assert.True(answer.Headers.CacheControl?.NoStore, path);
        }
    }

    [Fact]
    public async Task Overview_NamesEveryNodeAndLeader()
    {
        using var http = await StartAsync();
        var overview = await http.GetFromJsonAsync<JsonElement>("/api/overview");
        Assert.Equal([1, 2, 3], overview.GetProperty("nodes").EnumerateArray().Select(node => node.GetProperty("node").GetInt32()));
        Assert.Equal(1, overview.GetProperty("shardsTotal").GetInt32());
        Assert.False(overview.GetProperty("canChange").GetBoolean());
    }

    [Fact]
    public async Task Overview_TellsWhatTheMemoryAndTheDiskOfANodeAreUsedFor()
    {
        using var http = await StartAsync();
        var overview = await OverviewAsync(http);
        var node = overview.GetProperty("nodes")[0];
        Assert.Equal(
            [
                ("budgetBytes", 1_000), ("changedPagesBytes", 100), ("readerPagesBytes", 20), ("freePagesBytes", 3), ("journalBytes", 40),
                ("journalIndexBytes", 5), ("requestsBytes", 6), ("heldBackUs", 7)
            ],
            node.GetProperty("memory").EnumerateObject().Select(use => (use.Name, use.Value.GetInt32())));
        Assert.Equal(4_096, node.GetProperty("dataAllocatedBytes").GetInt32());
        var shard = overview.GetProperty("shards")[0];
        Assert.Equal((8_192, 4_096), (shard.GetProperty("dataBytes").GetInt32(), shard.GetProperty("dataAllocatedBytes").GetInt32()));
        // The page shows each of them.
        var script = await http.GetStringAsync("/console/overview.js");
        Assert.All(node.GetProperty("memory").EnumerateObject(), use => Assert.Contains($"memory.{use.Name}", script, StringComparison.Ordinal));
    }

    [Fact]
    public async Task Overview_TellsTheHealthInOneSentence()
    {
        using var http = await StartAsync();
        Assert.Equal(
            "3 of 3 nodes answer, and every shard has a leader and 3 replicas.",
            (await OverviewAsync(http)).GetProperty("health").GetProperty("text").GetString());
    }

    [Fact]
    public void Health_OfAClusterThatLacksSomething_SaysWhat()
    {
        Assert.Equal(new Health("0 of 0 nodes answer, and no shard is known.", false), Health.Of([], [], DateTimeOffset.UnixEpoch));
        Assert.Equal(new Health("1 of 2 nodes answer, every shard has a leader, and 1 of 2 shards is without all of its replicas.", false), HealthOf(
            [Role.Leader, Role.Follower], [Role.Leader]));
        Assert.Equal(new Health("1 of 2 nodes answer, 2 of 2 shards are without a leader, and 1 of 2 shards is without all of its replicas.", false), HealthOf(
            [Role.Follower, Role.Failed], [Role.Follower, Role.Candidate]));
        Assert.Equal(new Health("1 of 2 nodes answer, and 1 of 2 shards is without a leader.", false), HealthOf(
            [Role.Follower, Role.Follower], [Role.Follower, Role.Leader]));
    }

    /// <summary>Of what the nodes know the newest counts: one that is cut off from the coordinator knows an older snapshot.</summary>
    [Theory]
    [InlineData(-5, "0 min")]
    [InlineData(119, "119 min")]
    [InlineData(4 * 60, "4 h")]
    [InlineData(47 * 60, "47 h")]
    [InlineData(75 * 60, "3 days")]
    public void Health_WithASnapshotOfTheCoordinator_SaysItsAge(int minutes, string age)
    {
        var saved = new DateTimeOffset(2026, 3, 4, 5, 6, 7, TimeSpan.Zero);
        var savedUs = saved.ToUnixTimeMilliseconds() * 1_000;
        V1.NodeStatus[] nodes = [new() { Node = 1, CoordinatorSnapshotUnixUs = savedUs - 1_000_000 },
            new() { Node = 2, CoordinatorSnapshotUnixUs = savedUs }, new() { Node = 3, Error = "gone" }];
        Assert.Equal($"2 of 3 nodes answer, and no shard is known; coordinator snapshot {age} old.", Health.Of(nodes, [], saved.AddMinutes(minutes)).Text);
    }

    /// <summary>Findings are those of <c>kv doctor</c>. A node that answers clients, but not operators from here, is no problem of the cluster.</summary>
    [Fact]
    public async Task Findings_AreThoseOfDoctor()
    {
        _cluster.Nodes[0].Examination = new KvCluster.Admin.V1.NodeExamination
        {
            Node = 1, Address = _cluster.Nodes[0].Address, Version = "1",
            SyncUs = 1_000,
            SyncUsMax = 2_000, DiskFreeBytes = 500_000_000, DiskBytes = 100_000_000_000, OpenFiles = 10, OpenFilesMax = 100_000, CoordinatorUs = 1_000,
        };
        using var http = await StartAsync();
        // On a machine that stalls, an answer that came late is a finding too.
        var told = await UntilAsync(http, "/api/findings", static read => read.GetProperty("findings").GetArrayLength() == 1);
        var finding = told.GetProperty("findings")[0];
        Assert.Equal((true, "free space of node 1"), (finding.GetProperty("isProblem").GetBoolean(), finding.GetProperty("subject").GetString()));
        Assert.NotEqual("", finding.GetProperty("advice").GetString());
        Assert.Equal([2, 3], told.GetProperty("notExamined").EnumerateArray().Select(node => node.GetProperty("node").GetInt32()));
    }

    [Fact]
    public async Task History_OfANode_HasOneValueForEachSample()
    {
        _cluster.Nodes[0].History = new NodeHistory
        {
            UnixUs = { 1_000_000, 6_000_000 }, MeasuredUs = { 0, 2_000_000 },
            Reads = { 0, 50 }, Writes = { 0, 0 }, ReadP50Us = { 0, 70 }, ReadP99Us = { 0, 90 }, WriteP50Us = { 0, 0 }, WriteP99Us = { 0, 0 },
            LagChanges = { 0, 3 }, ChangedPagesBytes = { 1, 2 },
            ReaderPagesBytes = { 3, 4 }, FreePagesBytes = { 5, 6 }, JournalBytes = { 7, 8 }, JournalIndexBytes = { 9, 10 }, RequestsBytes = { 11, 12 },
            DiskUsedBytes = { 13, 14 }, DiskFreeBytes = { 15, 16 }, Checkpoints = { 0, 1 }, CheckpointBytes = { 0, 17 },
        };
        using var http = await StartAsync();
        // The others tell none, as nodes of an older version do, and as does a node that is late.
        var history = await UntilAsync(http, "/api/history", static read => read.GetProperty("nodes").GetArrayLength() > 0);
        var node = Assert.Single(history.GetProperty("nodes").EnumerateArray());
        Assert.Equal(1, node.GetProperty("node").GetInt32());
        Assert.Equal("[1000,6000]", node.GetProperty("unixMs").GetRawText());
        // Nothing is known of a time in which no call was measured, and no duration where there was none.
        Assert.Equal("[null,25]", node.GetProperty("readsPerSecond").GetRawText());
        Assert.Equal("[null,0]", node.GetProperty("writesPerSecond").GetRawText());
        Assert.Equal("[null,90]", node.GetProperty("readP99Us").GetRawText());
        Assert.Equal("[null,null]", node.GetProperty("writeP99Us").GetRawText());
        // The page draws each of them.
        var script = await http.GetStringAsync("/console/history.js");
        Assert.All(node.EnumerateObject().Where(series => series.Name is not "node"), series =>
        {
            Assert.Equal(2, series.Value.GetArrayLength());
            Assert.Contains($"'{series.Name}'", script, StringComparison.Ordinal);
        });
    }

    [Fact]
    public async Task Keys_ArePagedInOrderUnderTheirPrefix()
    {
        foreach (var key in (string[])["a", "h/1", "h/2", "h/3", "q"])
            await _client.PutAsync(key, $"of {key}");
        using var http = await StartAsync();
        var first = await http.GetFromJsonAsync<JsonElement>($"/api/keys?prefix={Url("h/")}&limit=2");
        Assert.Equal(["h/1", "h/2"], KeysOf(first));
        Assert.True(first.GetProperty("more").GetBoolean());
        var second = await http.GetFromJsonAsync<JsonElement>($"/api/keys?prefix={Url("h/")}&after={Url("h/2")}&limit=2");
        Assert.Equal(["h/3"], KeysOf(second));
        Assert.False(second.GetProperty("more").GetBoolean());
    }

    /// <summary>"More" behind such a key gave 400: nodes refused the bound behind it as too long a key.</summary>
    [Fact]
    public async Task Keys_BehindTheLongestKey_AreOnTheNextPage()
    {
        var nodes = await NodeCluster.StartAsync(1);
        _running.Add(nodes);
        var longest = Enumerable.Range(0, 2).Select(static number => $"h/{number}".PadRight(KvLimits.KeyBytesMax, 'x')).ToList();
        await using (var client = new KvClient(new KvClientOptions { Endpoints = [nodes.AddressOf(1)], Timeout = Eventually.Limit }))
        {
            foreach (var key in longest)
                await client.PutAsync(key, "v");
        }
        using var http = await StartAsync(endpoint: nodes.AddressOf(1));
        var first = await http.GetFromJsonAsync<JsonElement>($"/api/keys?prefix={Url("h/")}&limit=1");
        Assert.Equal([longest[0]], KeysOf(first));
        Assert.True(first.GetProperty("more").GetBoolean());
        var second = await http.GetFromJsonAsync<JsonElement>($"/api/keys?prefix={Url("h/")}&after={Url(longest[0])}&limit=1");
        Assert.Equal([longest[1]], KeysOf(second));
        var third = await http.GetFromJsonAsync<JsonElement>($"/api/keys?prefix={Url("h/")}&after={Url(longest[1])}&limit=1");
        Assert.Empty(KeysOf(third));
        Assert.False(third.GetProperty("more").GetBoolean());
    }

    [Theory]
    [InlineData("/api/keys?limit=0")]
    [InlineData("/api/keys?limit=201")]
    [InlineData("/api/keys?limit=x")]
    [InlineData("/api/keys?limit=1&prefix=%25%25")]
    [InlineData("/api/value?key=*")]
    public async Task Request_Malformed_IsRefusedWithAReason(string path)
    {
        using var http = await StartAsync();
        using var answer = await http.GetAsync(path);
        Assert.Equal(HttpStatusCode.BadRequest, answer.StatusCode);
        Assert.NotEqual("", (await answer.Content.ReadFromJsonAsync<JsonElement>()).GetProperty("error").GetString());
    }

    [Fact]
    public async Task Value_TooLargeToShow_IsCutAndItsSizeShown()
    {
        await _client.PutAsync(Encoding.UTF8.GetBytes("a"), new byte[KeyBrowser.ValueBytesShown + 1]);
        using var http = await StartAsync();
        var value = await http.GetFromJsonAsync<JsonElement>($"/api/value?key={Url("a")}");
        Assert.Equal(KeyBrowser.ValueBytesShown, value.GetProperty("value").GetBytesFromBase64().Length);
        Assert.Equal(KeyBrowser.ValueBytesShown + 1, value.GetProperty("bytes").GetInt32());
    }

    [Fact]
    public async Task Put_WithTheEtagThatWasRead_ReplacesOnlyThatValue()
    {
        await _client.PutAsync("a", "one");
        using var http = await StartAsync(Token);
        http.DefaultRequestHeaders.Authorization = new("Bearer", Token);
        var etag = (await http.GetFromJsonAsync<JsonElement>($"/api/value?key={Url("a")}")).GetProperty("etag").GetString();
        Assert.Equal(HttpStatusCode.OK, await PutAsync(http, "a", "two", etag));
        Assert.Equal(HttpStatusCode.PreconditionFailed, await PutAsync(http, "a", "three", etag));
        Assert.Equal(HttpStatusCode.PreconditionFailed, await PutAsync(http, "a", "three", etag: null));
        Assert.Equal("two", Encoding.UTF8.GetString((await _client.GetAsync("a")).Value.Span));
        Assert.Equal(HttpStatusCode.BadRequest, await PutAsync(http, "a", "three", "no etag"));
    }

    /// <summary>Saving a value dropped the key's expiry and its owner.</summary>
    [Fact]
    public async Task Put_KeepsWhenTheKeyEnds()
    {
        using var http = await StartAsync(Token);
        http.DefaultRequestHeaders.Authorization = new("Bearer", Token);
        Assert.Equal(HttpStatusCode.OK, await PutAsync(http, "a", "one", etag: null));
        var put = PutRequest.Parser.ParseFrom(_cluster.Nodes.SelectMany(static node => node.Calls).Single(static call => call.Method == Method.Put).Request);
        Assert.Equal((true, true), (put.KeepExpiry, put.KeepOwner));
    }

    [Fact]
    public async Task Value_TellsHowLongItsKeyLivesAndWhoOwnsIt()
    {
        await _client.PutAsync("a", "one");
        _cluster.Life = new Life { LeftMs = 1_500, Owner = new V1.Etag { Epoch = 1, Change = 2 } };
        using var http = await StartAsync();
        var value = await http.GetFromJsonAsync<JsonElement>($"/api/value?key={Url("a")}");
        Assert.Equal((1_500, new Etag(1, 2).ToString()), (value.GetProperty("leftMs").GetInt32(), value.GetProperty("owner").GetString()));
        _cluster.Life = null;
        value = await http.GetFromJsonAsync<JsonElement>($"/api/value?key={Url("a")}");
        Assert.False(value.TryGetProperty("leftMs", out _) || value.TryGetProperty("owner", out _));
    }

    [Fact]
    public async Task Change_WithoutTheRightToken_IsRefusedAndNotApplied()
    {
        using var http = await StartAsync(Token);
        Assert.Equal(HttpStatusCode.Unauthorized, await PutAsync(http, "a", "one", etag: null));
        foreach (var wrong in (string[])[Token + "x", Token[..^1], "", Token.ToUpperInvariant()])
        {
            http.DefaultRequestHeaders.Remove("Authorization");
            http.DefaultRequestHeaders.TryAddWithoutValidation("Authorization", $"Bearer {wrong}");
            Assert.Equal(HttpStatusCode.Unauthorized, await PutAsync(http, "a", "one", etag: null));
        }
        http.DefaultRequestHeaders.Remove("Authorization");
        using var inAddress = await http.PostAsJsonAsync($"/api/put?token={Token}&access_token={Token}", new { key = "YQ==", value = "YQ==" });
        Assert.Equal(HttpStatusCode.Unauthorized, inAddress.StatusCode);
        Assert.Empty(_cluster.Applied);
    }

    [Fact]
    public async Task Change_WithoutAConfiguredToken_IsDisabled()
    {
        using var http = await StartAsync();
        http.DefaultRequestHeaders.Authorization = new("Bearer", Token);
        foreach (var (path, body) in ((string, object)[])[("put", new { key = "YQ==", value = "YQ==" }),
            ("delete", new { key = "YQ==", etag = "" }), ("transfer", new { shard = 1, node = 2 }), ("drain", new { node = 1, draining = true })])
        {
            using var answer = await http.PostAsJsonAsync($"/api/{path}", body);
            Assert.Equal(HttpStatusCode.Forbidden, answer.StatusCode);
        }
        Assert.Empty(_cluster.Applied);
    }

    [Theory]
    [InlineData("Origin", "http://elsewhere.example")]
    [InlineData("Origin", "null")]
    [InlineData("Sec-Fetch-Site", "cross-site")]
    [InlineData("Sec-Fetch-Site", "same-site")]
    public async Task Request_OfAnotherSitesPage_IsRefused(string header, string value)
    {
        using var http = await StartAsync(Token);
        http.DefaultRequestHeaders.Authorization = new("Bearer", Token);
        http.DefaultRequestHeaders.Add(header, value);
        Assert.Equal(HttpStatusCode.Forbidden, await PutAsync(http, "a", "one", etag: null));
        using var read = await http.GetAsync("/api/overview");
        Assert.Equal(HttpStatusCode.Forbidden, read.StatusCode);
        Assert.Empty(_cluster.Applied);
    }

    [Fact]
    public async Task Request_OfThePageItself_IsAccepted()
    {
        using var http = await StartAsync(Token);
        http.DefaultRequestHeaders.Authorization = new("Bearer", Token);
        http.DefaultRequestHeaders.Add("Origin", http.BaseAddress!.GetLeftPart(UriPartial.Authority));
        http.DefaultRequestHeaders.Add("Sec-Fetch-Site", "same-origin");
        Assert.Equal(HttpStatusCode.OK, await PutAsync(http, "a", "one", etag: null));
    }

    // The node 0 was asked for by its number, although it stands for the one that has most of the journal.
    [Theory]
    [InlineData("{\"shard\":1}", null)]
    [InlineData("{\"shard\":1,\"node\":null}", null)]
    [InlineData("{\"shard\":1,\"node\":0}", null)]
    [InlineData("{\"shard\":1,\"node\":3}", 3u)]
    public async Task Transfer_NamesANodeOnlyIfItIsAskedFor(string body, uint? expected)
    {
        using var http = await StartAsync(Token);
        http.DefaultRequestHeaders.Authorization = new("Bearer", Token);
        using var content = new StringContent(body, Encoding.UTF8, "application/json");
        using var answer = await http.PostAsync("/api/transfer", content);
        Assert.Equal(HttpStatusCode.OK, answer.StatusCode);
        var asked = Assert.Single(_cluster.Nodes.SelectMany(node => node.Transfers));
        Assert.Equal(expected, asked.HasToNode ? asked.ToNode : null);
    }

    [Fact]
    public async Task Change_NotJson_IsRefused()
    {
        using var http = await StartAsync(Token);
        http.DefaultRequestHeaders.Authorization = new("Bearer", Token);
        foreach (var content in (StringContent[])
        [
            new("{}", Encoding.UTF8, "text/plain"), new("{", Encoding.UTF8, "application/json"),
            new("null", Encoding.UTF8, "application/json"), new("{\"key\":\"YQ==\"}", Encoding.UTF8, "application/json")
        ])
        {
            using var answer = await http.PostAsync("/api/put", content);
            Assert.Equal(HttpStatusCode.BadRequest, answer.StatusCode);
        }
        Assert.Empty(_cluster.Applied);
    }

    // null became an empty value, and of two keys the last one was taken.
    [Theory]
    [InlineData("{\"key\":\"YQ==\",\"value\":null}")]
    [InlineData("{\"key\":null,\"value\":\"YQ==\"}")]
    [InlineData("{\"key\":\"YQ==\",\"key\":\"Yg==\",\"value\":\"YQ==\"}")]
    [InlineData("{\"key\":\"YQ==\",\"Key\":\"Yg==\",\"value\":\"YQ==\"}")]
    [InlineData("{\"key\":\"YQ==\",\"value\":\"YQ==\",\"ttl\":1}")]
    public async Task Change_WhoseMeaningIsInDoubt_IsRefused(string body)
    {
        using var http = await StartAsync(Token);
        http.DefaultRequestHeaders.Authorization = new("Bearer", Token);
        using var content = new StringContent(body, Encoding.UTF8, "application/json");
        using var answer = await http.PostAsync("/api/put", content);
        Assert.Equal(HttpStatusCode.BadRequest, answer.StatusCode);
        Assert.Empty(_cluster.Applied);
    }

    [Fact]
    public async Task Keys_OfAClusterWithClientCertificates_NeedTheToken()
    {
        await _client.PutAsync("a", "one");
        using var http = await StartAsync(Token, keysNeedToken: true);
        foreach (var path in (string[])[$"/api/keys?limit=1", $"/api/value?key={Url("a")}"])
        {
            using var answer = await http.GetAsync(path);
            Assert.Equal(HttpStatusCode.Unauthorized, answer.StatusCode);
        }
        Assert.False((await http.GetFromJsonAsync<JsonElement>("/api/overview")).GetProperty("showsKeys").GetBoolean());
        http.DefaultRequestHeaders.Authorization = new("Bearer", Token);
        Assert.Equal(["a"], KeysOf(await http.GetFromJsonAsync<JsonElement>("/api/keys?limit=1")));
        Assert.True((await http.GetFromJsonAsync<JsonElement>("/api/overview")).GetProperty("showsKeys").GetBoolean());
    }

    [Fact]
    public async Task Token_ChangedInItsFile_CountsFromTheNextRequest()
    {
        using var http = await StartAsync(Token);
        http.DefaultRequestHeaders.Authorization = new("Bearer", "another-token-of-some-length");
        Assert.Equal(HttpStatusCode.Unauthorized, (await http.GetAsync("/api/token")).StatusCode);
        await File.WriteAllTextAsync(TokenFile, "another-token-of-some-length\n");
        Assert.Equal(HttpStatusCode.OK, (await http.GetAsync("/api/token")).StatusCode);
    }

    [Fact]
    public async Task Token_TooShortOrMissing_IsAMistakeThatNamesItsFile()
    {
        await File.WriteAllTextAsync(TokenFile, "short\n");
        Assert.Contains(TokenFile, Assert.Throws<UnusableFileException>(() => new AdminToken(TokenFile)).Message, StringComparison.Ordinal);
        File.Delete(TokenFile);
        Assert.Contains(TokenFile, Assert.Throws<UnusableFileException>(() => new AdminToken(TokenFile)).Message, StringComparison.Ordinal);
    }

    // One of two nodes answers. The shards have replicas in these roles, of two voters each.
    private static Health HealthOf(params Role[][] shards) => Health.Of(
        [new V1.NodeStatus { Node = 1 }, new V1.NodeStatus { Node = 2, Error = "gone" }],
        [.. shards.Select(static roles => new ShardSeen(
            [.. roles.Select(static (role, index) => ((uint)index + 1, new V1.ReplicaStatus { Route = new ShardRoute { Nodes = { 1, 2 } }, Role = role }))]))],
        DateTimeOffset.UnixEpoch);

    private string TokenFile => Path.Combine(_directory.Path, "token");

    private static string Url(string key) => Base64Url.EncodeToString(Encoding.UTF8.GetBytes(key));

    private static IEnumerable<string> KeysOf(JsonElement page) =>
        page.GetProperty("entries").EnumerateArray().Select(entry => Encoding.UTF8.GetString(entry.GetProperty("key").GetBytesFromBase64()));

    private static async Task<HttpStatusCode> PutAsync(HttpClient http, string key, string value, string? etag)
    {
        using var answer = await http.PostAsJsonAsync("/api/put", new { key = Encoding.UTF8.GetBytes(key), value = Encoding.UTF8.GetBytes(value), etag });
        return answer.StatusCode;
    }

    // A page of another site, whose host name resolves to this machine, makes requests as if from its own site.
    [Theory]
    [InlineData("kv.example.com", HttpStatusCode.OK)]
    [InlineData("localhost", HttpStatusCode.OK)]
    [InlineData("10.1.2.3:7480", HttpStatusCode.OK)]
    [InlineData("[::1]:7480", HttpStatusCode.OK)]
    [InlineData("evil.example", HttpStatusCode.Forbidden)]
    [InlineData("10.1.2.3.evil.example:7480", HttpStatusCode.Forbidden)]
    public async Task Call_UnderAHostName_IsAnsweredOnlyIfTheNameIsKnown(string host, HttpStatusCode expected)
    {
        using var http = await StartAsync();
        http.DefaultRequestHeaders.Host = host;
        http.DefaultRequestHeaders.Add("Sec-Fetch-Site", "same-origin");
        using var answer = await http.GetAsync($"/api/keys?prefix={Url("")}&limit=1");
        Assert.Equal(expected, answer.StatusCode);
    }

    // A node that does not answer within seconds, as where the machine stalls, has an error in its place.
    private static Task<JsonElement> OverviewAsync(HttpClient http) =>
        UntilAsync(http, "/api/overview", static read => read.GetProperty("health").GetProperty("isGood").GetBoolean());

    private static async Task<JsonElement> UntilAsync(HttpClient http, string path, Func<JsonElement, bool> isExpected)
    {
        var read = default(JsonElement);
        await Eventually.TrueAsync(
            async () => isExpected(read = await http.GetFromJsonAsync<JsonElement>(path)), () => $"{path} tells what is expected, not {read}");
        return read;
    }

    private async Task<HttpClient> StartAsync(string? token = null, bool keysNeedToken = false, string? endpoint = null)
    {
        if (token is not null)
            await File.WriteAllTextAsync(TokenFile, token + "\n");
        var admin = await AdminServer.StartAsync(new Uri("http://127.0.0.1:0"), NullLoggerFactory.Instance, [], CancellationToken.None);
        _running.Add(admin);
        var options = new ConsoleOptions
        {
            Program = "a test", Endpoints = [endpoint ?? _cluster.Endpoint], Token = new AdminToken(token is null ? null : TokenFile),
            KeysNeedToken = keysNeedToken, Hosts = new HashSet<string> { "kv.example.com" }
        };
        _running.Add(ClusterConsole.Add(admin, options, NullLoggerFactory.Instance)!);
        return new HttpClient { BaseAddress = new Uri(admin.Address) };
    }
}
