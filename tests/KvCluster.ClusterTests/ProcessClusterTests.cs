using System.Collections.Concurrent;
using System.Net;
using System.Net.Http.Headers;
using Google.Protobuf;
using Grpc.Core;
using Grpc.Net.Client;
using KvCluster.Client;
using KvCluster.Processes;
using KvCluster.V1;

namespace KvCluster.ClusterTests;

/// <summary>A cluster of real processes, used through its router as any gRPC client does, and killed.</summary>
public sealed class ProcessClusterTests
{
    private static readonly string[] ThreeShards = ["--processes", "--split-at", "files/,packages/"];

    [Fact]
    public async Task Calls_ThroughTheRouter_ReadAndChangeKeysOfAllShards()
    {
        using var folder = new TemporaryDirectory();
        await using var cluster = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten(), ThreeShards);
        using var channel = GrpcChannel.ForAddress(cluster.RouterAddress);
        var kv = new Kv.KvClient(channel.Calls());
        string[] keys = ["alpha", "files/etc/hosts", "files/usr/bin/env", "packages/games/chess"];

        var positions = new List<Position>();
        foreach (var key in keys)
            positions.Add(
                (await AnsweredAsync(limit => kv.PutAsync(new PutRequest { Key = Bytes(key), Value = Bytes("of " + key) }, deadline: limit))).Position);
        Assert.Equal(3, positions.Select(position => position.Shard).Distinct().Count());

        var got = await AnsweredAsync(limit => kv.GetAsync(new GetRequest { Key = Bytes(keys[1]) }, deadline: limit));
        Assert.True(got.Found);
        Assert.Equal("of files/etc/hosts", got.Value.ToStringUtf8());
        Assert.Equal(positions[1].Etag, got.Etag);
        Assert.False((await AnsweredAsync(limit => kv.GetAsync(new GetRequest { Key = Bytes("absent") }, deadline: limit))).Found);

        var many = await AnsweredAsync(
            limit => kv.GetManyAsync(new GetManyRequest { Keys = { keys.Reverse().Append("absent").Select(Bytes) } }, deadline: limit));
        Assert.Equal([.. keys.Reverse().Select(key => "of " + key), ""], many.Entries.Select(entry => entry.Value.ToStringUtf8()));
        Assert.Equal(keys, await ScanAsync(kv, new ScanRequest()));
        Assert.Equal(keys.Reverse(), await ScanAsync(kv, new ScanRequest { Reverse = true }));
        Assert.Equal(["files/etc/hosts", "files/usr/bin/env"], await ScanAsync(kv, new ScanRequest { Prefix = Bytes("files/") }));

        var stale = await Assert.ThrowsAsync<RpcException>(() => AnsweredAsync(limit => kv.PutAsync(
            new PutRequest { Key = Bytes(keys[1]), Value = Bytes("never"), Conditions = { new Condition { EtagEquals = positions[2].Etag } } },
            deadline: limit)));
        Assert.Equal(StatusCode.FailedPrecondition, stale.StatusCode);
        var newer = new PutRequest
        {
            Key = Bytes(keys[1]), Value = Bytes("newer"), Conditions = { new Condition { EtagEquals = got.Etag } }, RequestId = await IdAsync(keys[1])
        };
        var conditional = await AnsweredAsync(limit => kv.PutAsync(newer, deadline: limit));
        Assert.True(EtagOf(conditional.Position) > EtagOf(positions[1]));

        var delete = new DeleteRequest { Key = Bytes(keys[0]), RequestId = await IdAsync(keys[0]) };
        Assert.True((await AnsweredAsync(limit => kv.DeleteAsync(delete, deadline: limit))).Existed);
        Assert.False((await AnsweredAsync(limit => kv.DeleteAsync(new DeleteRequest { Key = Bytes(keys[0]) }, deadline: limit))).Existed);
        var empty = await Assert.ThrowsAsync<RpcException>(async () => await kv.PutAsync(new PutRequest()));
        Assert.Equal(StatusCode.InvalidArgument, empty.StatusCode);

        // For a change whose answer depends on whether it was made before.
        async Task<RequestId> IdAsync(string key)
        {
            var opened = await AnsweredAsync(limit => kv.OpenSessionAsync(new OpenSessionRequest { Key = Bytes(key) }, deadline: limit));
            return new RequestId { Session = opened.Session, Sequence = 1, LowestOpen = 1, Shard = opened.Position.Shard };
        }
    }

    [Fact]
    [Trait("Turn", "1")]
    public Task Console_OfALocalCluster_ShowsItAndAcceptsTheTokenOfItsFile() => ShowAsync(processes: false, consoles: 1);

    [Fact]
    [Trait("Turn", "7")]
    public Task Consoles_OfAClusterOfProcesses_ShowItAndAcceptTheTokenOfItsFile() => ShowAsync(processes: true, consoles: 4);

    private static async Task ShowAsync(bool processes, int consoles)
    {
        using var folder = new TemporaryDirectory();
        await using var cluster = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten(), processes ? ["--processes"] : []);
        var shown = cluster.Lines.Where(line => line.StartsWith("  console", StringComparison.Ordinal))
            .Select(line => line.Split(' ', StringSplitOptions.RemoveEmptyEntries)[1]).ToList();
        Assert.Equal(Enumerable.Range(cluster.ConsolePort, consoles).Select(port => $"http://127.0.0.1:{port}"), shown);

        var file = Path.Combine(folder.Path, "admin-token");
        Assert.Contains(cluster.Lines, line => line.StartsWith($"  token    {file}", StringComparison.Ordinal));
        if (!OperatingSystem.IsWindows())
            Assert.Equal(UnixFileMode.UserRead | UnixFileMode.UserWrite, File.GetUnixFileMode(file));
        using var browser = new HttpClient();
        foreach (var address in shown)
        {
            Assert.Contains("<html", await browser.GetStringAsync(address), StringComparison.Ordinal);
            Assert.Equal(HttpStatusCode.Unauthorized, await AskAsync(address, token: null));
            Assert.Equal(HttpStatusCode.OK, await AskAsync(address, File.ReadAllText(file).Trim()));
        }

        async Task<HttpStatusCode> AskAsync(string address, string? token)
        {
            using var request = new HttpRequestMessage(HttpMethod.Get, address + "/api/token");
            request.Headers.Authorization = token is null ? null : new AuthenticationHeaderValue("Bearer", token);
            using var answer = await browser.SendAsync(request);
            return answer.StatusCode;
        }
    }

    /// <summary>
    /// From certificates and flags to a put. The nodes trust each other and the router, and a client without a certificate that trusts their
    /// authority is served.
    /// </summary>
    [Fact]
    [Trait("Turn", "1")]
    public async Task Calls_WithTls_NeedTheAuthorityOfTheCluster()
    {
        using var folder = new TemporaryDirectory();
        await using var cluster = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten(), "--processes", "--tls");
        await using var client = new KvClient(new KvClientOptions
        {
            Endpoints = [cluster.SecureRouterAddress],
            Tls = new KvTlsOptions { AuthorityFile = Path.Combine(folder.Path, "certs", "ca.crt") },
            Timeout = Eventually.Limit,
        });
        await client.PutAsync("key", "value");
        Assert.True((await client.GetAsync("key")).Found);

        // It retries until its deadline, which must be long enough for the first attempt.
        var time = TimeSpan.FromSeconds(2);
        await Eventually.TrueAsync(async () =>
        {
            await using var stranger = new KvClient(new KvClientOptions { Endpoints = [cluster.SecureRouterAddress], Gateway = true, Timeout = time });
            time *= 2;
            var failure = await Assert.ThrowsAsync<KvUnavailableException>(async () => await stranger.GetAsync("key"));
            return failure.Message.Contains("its certificate (CN=router) is not signed by an authority that this machine trusts", StringComparison.Ordinal);
        }, "a client that does not trust the router's certificate is told why");
    }

    [Fact]
    [Trait("Turn", "7")]
    public async Task KillHard_OfALeaderUnderWrites_LosesNothingAcknowledged()
    {
        using var folder = new TemporaryDirectory();
        await using var cluster = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten(), "--processes");
        using var channel = GrpcChannel.ForAddress(cluster.RouterAddress);
        var kv = new Kv.KvClient(channel.Calls());
        var status = new V1.Cluster.ClusterClient(channel.Calls());
        var acknowledged = new ConcurrentDictionary<string, string>();
        using var enough = new CancellationTokenSource();
        var writers = Enumerable.Range(0, 8).Select(writer => Task.Run(() => WriteUntilAsync(kv, writer, acknowledged, enough.Token))).ToArray();

        await Eventually.TrueAsync(() => acknowledged.Count > 200, "writes before the kill");
        uint? leader = null;
        await Eventually.TrueAsync(
            async () => await RouterStatus.StatusAsync(status) is { } now && (leader = RouterStatus.LeaderOf(now)) is not null, "one node leads");
        var killed = cluster.PidOf($"node-{leader}");
        System.Diagnostics.Process.GetProcessById(killed).Kill();
        var before = acknowledged.Count;
        await Eventually.TrueAsync(() => acknowledged.Count > before + 200, "writes after the kill");
        await Eventually.TrueAsync(() => cluster.PidOf($"node-{leader}") is var pid && pid != killed && LauncherProcess.IsAlive(pid), "the node runs again");
        await enough.CancelAsync();
        await Task.WhenAll(writers);

        foreach (var (key, value) in acknowledged)
            Assert.Equal(value, (await AnsweredAsync(limit => kv.GetAsync(new GetRequest { Key = Bytes(key) }, deadline: limit))).Value.ToStringUtf8());
        await Eventually.TrueAsync(
            async () => await RouterStatus.StatusAsync(status, digest: true) is { } now && RouterStatus.AllReplicasEqual(now), "three equal replicas");
    }

    [Fact]
    [Trait("Turn", "7")]
    public async Task KillHard_OfTheLauncher_EndsItsChildrenAndReleasesTheDirectory()
    {
        using var folder = new TemporaryDirectory();
        var cluster = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten(), "--processes");
        await using (cluster)
        {
            using var channel = GrpcChannel.ForAddress(cluster.RouterAddress);
            await AnsweredAsync(
                limit => new Kv.KvClient(channel.Calls()).PutAsync(new PutRequest { Key = Bytes("kept"), Value = Bytes("yes") }, deadline: limit));
            var children = new[] { "node-1", "node-2", "node-3", "router" }.Select(cluster.PidOf).ToArray();
            Assert.All(children, child => Assert.True(LauncherProcess.IsAlive(child)));
            cluster.KillHard();
            await Eventually.TrueAsync(() => !children.Any(LauncherProcess.IsAlive), "all children are gone");
        }

        await using var again = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten(), "--processes");
        using var channelAgain = GrpcChannel.ForAddress(again.RouterAddress);
        var kept = new GetRequest { Key = Bytes("kept") };
        Assert.Equal(
            "yes", (await AnsweredAsync(limit => new Kv.KvClient(channelAgain.Calls()).GetAsync(kept, deadline: limit))).Value.ToStringUtf8());
    }

    [Fact]
    [Trait("Turn", "7")]
    public async Task Stop_OfAClusterInOneProcess_IsCleanAndKeepsItsData()
    {
        using var folder = new TemporaryDirectory();
        var wasInTime = false;
        for (var stop = 0; stop < 5 && !wasInTime; stop++)
        {
            await using var cluster = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten(), "--sample", "--shards", "3");
            var (took, exitCode) = await cluster.StopAsync();
            // On a machine that stalls the stop may be aborted. Then try again.
            wasInTime = took < LauncherProcess.StopTimeMax;
            Assert.True(exitCode == 0 || !wasInTime, $"exit code {exitCode} after {took}");
            Assert.Empty(cluster.Errors);
        }

        await using var again = await LauncherProcess.StartAsync(folder.Path, FreePorts.Ten());
        using var channel = GrpcChannel.ForAddress(again.RouterAddress);
        var kv = new Kv.KvClient(channel.Calls());
        Assert.Equal(1983, (await ScanAsync(kv, new ScanRequest { Prefix = Bytes("packages/"), KeysOnly = true })).Count);
        await Eventually.TrueAsync(
            async () => (await RouterStatus.StatusAsync(new V1.Cluster.ClusterClient(channel.Calls())))?.Nodes[0].Replicas.Count == 3,
            "a node has a replica of each shard");
    }

    // Repeats the call while a stall of the machine leaves a shard without a leader.
    private static Task<T> AnsweredAsync<T>(Func<DateTime, AsyncUnaryCall<T>> call)
    {
        var limit = DateTime.UtcNow + Eventually.Limit;
        return Eventually.AnsweredAsync(() => call(limit).ResponseAsync, IsPassing);
    }

    private static bool IsPassing(RpcException failure) => failure.StatusCode is StatusCode.Unavailable or StatusCode.Unknown;

    private static async Task WriteUntilAsync(Kv.KvClient kv, int writer, ConcurrentDictionary<string, string> acknowledged, CancellationToken enough)
    {
        for (var number = 0; !enough.IsCancellationRequested; number++)
        {
            var (key, value) = ($"writer-{writer}/{number:D6}", $"value {number} of {writer}");
            try
            {
                await kv.PutAsync(new PutRequest { Key = Bytes(key), Value = Bytes(value) }, deadline: DateTime.UtcNow.AddSeconds(5));
                acknowledged[key] = value;
            }
            catch (RpcException e) when (e.StatusCode is StatusCode.Unavailable or StatusCode.Unknown or StatusCode.DeadlineExceeded)
            {
                // The write may or may not have happened. Only acknowledged ones are remembered, and each key is written once.
            }
        }
    }

    // From its beginning again if it ends early.
    private static Task<List<string>> ScanAsync(Kv.KvClient kv, ScanRequest request) => Eventually.AnsweredAsync(
        async () =>
        {
            var keys = new List<string>();
            using var call = kv.Scan(request, deadline: DateTime.UtcNow + Eventually.Limit);
            while (await call.ResponseStream.MoveNext(CancellationToken.None))
                keys.AddRange(call.ResponseStream.Current.Entries.Select(entry => entry.Key.ToStringUtf8()));
            return keys;
        },
        IsPassing);

    private static KvCluster.Etag EtagOf(Position position) => new(position.Etag.Epoch, position.Etag.Change);

    private static ByteString Bytes(string text) => ByteString.CopyFromUtf8(text);
}
