using System.Diagnostics;
using System.Net;
using System.Reflection;
using System.Security.Cryptography;
using System.Security.Cryptography.X509Certificates;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.Tests.Node;
using KvCluster.V1;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Server.Kestrel.Core;
using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.Logging;

namespace KvCluster.Tests.Client;

/// <summary>
/// What first-time users of the library do wrong, and what their failures are called: closed clients, nulls, wrong addresses, short timeouts.
/// </summary>
public sealed class MisuseTests
{
    /// <summary>What stands still accepts connections and answers nothing. It is no wrong address, and may go on.</summary>
    [Fact]
    [Trait("Turn", "4")]
    public async Task Call_ToAnAddressThatAnswersNothing_IsNotToldThatTheAddressIsWrong()
    {
        using var silent = new System.Net.Sockets.TcpListener(IPAddress.Loopback, 0);
        silent.Start();
        // Longer than until the connection is given up because pings are not answered.
        await using var client = new KvClient(new KvClientOptions { Endpoints = [$"http://{silent.LocalEndpoint}"], Timeout = TimeSpan.FromSeconds(6) });
        var failure = await Assert.ThrowsAnyAsync<KvException>(() => client.GetAsync("k").AsTask());
        Assert.True(failure is KvUnavailableException && failure.Reason != "ENDPOINT_UNUSABLE", $"{failure.Reason}: {failure.Message}");
    }

    /// <summary>The watch hung for ever.</summary>
    [Fact]
    public async Task StreamsInProgress_WhenTheClientIsDisposed_EndAndNameIt()
    {
        await using var nodes = await NodeCluster.StartAsync(1);
        var client = new KvClient(new KvClientOptions { Endpoints = [nodes.AddressOf(1)], Timeout = Eventually.Limit });
        await client.PutAsync("k", "v");
        var begun = new TaskCompletionSource();
        var watching = Task.Run(async () =>
        {
            await foreach (var _ in client.WatchAsync(new KvWatch()))
                begun.TrySetResult();
        });
        await begun.Task.WaitAsync(Eventually.Limit);
        await using var scan = client.ScanAsync(new KvScan()).GetAsyncEnumerator();
        Assert.True(await scan.MoveNextAsync());
        await client.DisposeAsync();
        await Assert.ThrowsAsync<ObjectDisposedException>(() => watching.WaitAsync(Eventually.Limit));
    }

    /// <summary>Some said that there was no leader, others did it after their whole time.</summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public async Task Calls_BegunAfterDisposal_NameIt(bool wasUsed)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var client = cluster.Connect();
        var load = client.BulkLoad();
        if (wasUsed)
            await client.PutAsync("k", "v");
        await client.DisposeAsync();
        ReadOnlyMemory<byte> key = "k"u8.ToArray();
        Func<Task>[] calls =
        [
            () => client.GetAsync("k").AsTask(),
            () => client.GetNearestAsync(key, KvNearest.Floor).AsTask(),
            () => client.GetManyAsync([key]).AsTask(),
            () => client.PutAsync("k", "v").AsTask(),
            () => client.PutAsync(key, key, new KvPutOptions()).AsTask(),
            () => client.TryPutAsync("k", "v", KvCondition.Absent()).AsTask(),
            () => client.TryWriteAsync(new KvWrite().Put(key, key)).AsTask(),
            () => client.DeleteAsync("k").AsTask(),
            () => client.DeleteRangeAsync(new KvRange { Prefix = key }).AsTask(),
            () => client.IncrementAsync("k").AsTask(),
            () => client.TouchAsync(key, null).AsTask(),
            () => client.TransactAsync(new KvTransaction()).AsTask(),
            () => client.WriteAsync(new KvWrite().Put(key, key)).AsTask(),
            () => client.ListAsync(new KvList()).AsTask(),
            () => client.CountAsync(key),
            () => client.FindShardAsync(key).AsTask(),
            () => client.Sets.AddAsync(key, [key]).AsTask(),
            () => client.Sets.CountAsync(key).AsTask(),
            () => client.Sessions.OpenAsync(key, TimeSpan.FromSeconds(10)).AsTask(),
            () => client.Admin.GetStatusAsync(),
            () => client.Admin.TransferAsync(1),
            () => client.Admin.DrainAsync(1),
            async () => await client.ScanAsync(new KvScan()).GetAsyncEnumerator().MoveNextAsync(),
            async () => await client.WatchAsync(new KvWatch()).GetAsyncEnumerator().MoveNextAsync(),
            async () => await client.Sets.ScanAsync(key).GetAsyncEnumerator().MoveNextAsync(),
            async () =>
            {
                await load.AddAsync(key, key);
                await load.FlushAsync();
            },
        ];
        foreach (var (number, call) in calls.Index())
        {
            var thrown = await Record.ExceptionAsync(() => call().WaitAsync(Eventually.Limit));
            Assert.True(thrown is ObjectDisposedException, $"Call {number} said: {thrown}");
        }
    }

    [Fact]
    public async Task Call_InProgressWhenTheClientIsDisposed_SaysSo()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        cluster.Nodes[0].Script = static call => Task.FromResult(call.Method == Method.Get ? FakeNode.Silence : null);
        var client = cluster.Connect();
        var reading = client.GetAsync("k").AsTask();
        await Eventually.TrueAsync(() => !cluster.Nodes[0].Calls.IsEmpty, "the call has arrived");
        await client.DisposeAsync();
        Assert.Equal("CLIENT_CLOSED", (await Assert.ThrowsAsync<KvUnavailableException>(() => reading.WaitAsync(Eventually.Limit))).Reason);
    }

    /// <summary>A cluster that is well was said to have no leader.</summary>
    [Fact]
    public async Task Timeout_OnAHealthyCluster_IsNotCalledTheLackOfALeader()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        cluster.Nodes[0].Script = static call => Task.FromResult(call.Method == Method.Get ? FakeNode.Silence : null);
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = TimeSpan.FromMilliseconds(300) });
        await Eventually.TrueAsync(async () => await client.FindShardAsync("k"u8.ToArray()) is not null, "the client knows the cluster");
        await Eventually.TrueAsync(async () =>
        {
            var failure = await Assert.ThrowsAsync<KvUnavailableException>(() => client.GetAsync("k").AsTask());
            Assert.Equal(ChangeOutcome.NotApplied, failure.Outcome);
            // On a busy machine the connection may not be there in time.
            return failure.Reason == "DEADLINE_PASSED";
        }, "the deadline passes while the node does not answer");
        // What the nodes said is still told.
        cluster.Nodes[0].Script = static call => Task.FromResult<Reply?>(FakeNode.Refuse(call, StatusCode.Unavailable, "BUSY"));
        await Eventually.TrueAsync(
            async () => (await Assert.ThrowsAsync<KvUnavailableException>(() => client.GetAsync("k").AsTask())).Reason == "BUSY",
            "the node says that it is busy");
        cluster.Nodes[0].Script = static call => Task.FromResult<Reply?>(FakeNode.Refuse(call, StatusCode.Unavailable, "NO_LEADER"));
        await Eventually.TrueAsync(
            async () => (await Assert.ThrowsAsync<KvUnavailableException>(() => client.GetAsync("k").AsTask())).Reason == "NO_LEADER",
            "the node says that it knows no leader");
    }

    /// <summary>Each of them used up the whole timeout.</summary>
    [Theory]
    [InlineData("unknown host", false)]
    [InlineData("admin port", false)]
    [InlineData("untrusted certificate", false)]
    [InlineData("http for https", false)]
    [InlineData("https for http", false)]
    public async Task Endpoint_ThatCanNeverBeUsed_IsToldAtOnce(string mistake, bool gateway)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using var secure = await ServerAsync(HttpProtocols.Http2, isSecure: true);
        await using var admin = await ServerAsync(HttpProtocols.Http1, isSecure: false);
        var endpoint = mistake switch
        {
            "unknown host" => "http://no-such-host.invalid:7400",
            "admin port" => AddressOf(admin, "http"),
            "untrusted certificate" => AddressOf(secure, "https"),
            "http for https" => AddressOf(secure, "http"),
            _ => cluster.Endpoint.Replace("http://", "https://", StringComparison.Ordinal),
        };
        await using var client = new KvClient(new KvClientOptions { Endpoints = [endpoint], Gateway = gateway, Timeout = Eventually.Limit });
        foreach (var call in (Func<Task>[])[() => client.GetAsync("k").AsTask(),
            () => client.PutAsync("k", "v").AsTask(), async () => await client.ScanAsync(new KvScan()).GetAsyncEnumerator().MoveNextAsync()])
        {
            var began = Stopwatch.GetTimestamp();
            var failure = await Assert.ThrowsAnyAsync<KvException>(call);
            Assert.True(failure.Reason == "ENDPOINT_UNUSABLE", $"{failure.Reason}: {failure.Message}");
            Assert.Equal(ChangeOutcome.NotApplied, failure.Outcome);
            Assert.True(Stopwatch.GetElapsedTime(began) < Eventually.Limit / 2);
        }
    }

    [Theory]
    [InlineData("unknown host")]
    [InlineData("admin port")]
    [InlineData("untrusted certificate")]
    [InlineData("http for https")]
    [InlineData("https for http")]
    [Trait("Turn", "4")]
    public Task Gateway_ThatCanNeverBeUsed_IsToldAtOnce(string mistake) => Endpoint_ThatCanNeverBeUsed_IsToldAtOnce(mistake, gateway: true);

    /// <summary>So does a proxy whose nodes are down, and it was called unusable.</summary>
    [Fact]
    public async Task Endpoint_ThatResetsConnections_IsTriedUntilTheTimeout()
    {
        await Eventually.LongEnoughAsync(TimeSpan.FromSeconds(3), async time =>
        {
            using var proxy = new System.Net.Sockets.TcpListener(IPAddress.Loopback, 0);
            proxy.Start();
            using var stopping = new CancellationTokenSource();
            var resets = ResetAsync();
            await using (var client = new KvClient(new KvClientOptions { Endpoints = [$"http://{proxy.LocalEndpoint}"], Timeout = time }))
            {
                var failure = await Assert.ThrowsAnyAsync<KvException>(() => client.GetAsync("k").AsTask());
                Assert.True(failure is KvUnavailableException && failure.Reason != "ENDPOINT_UNUSABLE", $"{failure.Reason}: {failure.Message}");
            }
            await stopping.CancelAsync();
            return await resets > 1;

            async Task<int> ResetAsync()
            {
                for (var count = 0; ; count++)
                {
                    try
                    {
                        using var connection = await proxy.AcceptSocketAsync(stopping.Token);
                        // What the client has sent is there, so that closing with it unread resets the connection.
                        await connection.ReceiveAsync(new byte[1], stopping.Token);
                        connection.Close(0);
                    }
                    catch (OperationCanceledException)
                    {
                        return count;
                    }
                }
            }
        });
    }

    [Fact]
    public Task Endpoint_ThatRefusesConnections_IsTriedUntilTheTimeout() => Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(400), async time =>
    {
        await using var client = new KvClient(new KvClientOptions { Endpoints = ["http://127.0.0.1:1"], Timeout = time });
        return (await Assert.ThrowsAsync<KvUnavailableException>(() => client.GetAsync("k").AsTask())).Reason == "NO_LEADER";
    });

    /// <summary>A status without details does not come from a node, and its reason was the name of an enumeration's member: Unavailable, Cancelled.</summary>
    [Theory]
    [InlineData(StatusCode.Unavailable, "NODE_UNREACHABLE")]
    [InlineData(StatusCode.Cancelled, "CANCELLED")]
    [InlineData(StatusCode.DeadlineExceeded, "DEADLINE_PASSED")]
    [InlineData(StatusCode.ResourceExhausted, "NOT_READ")]
    [InlineData(StatusCode.Unimplemented, "UNIMPLEMENTED")]
    public void Reason_OfAStatusWithoutDetails_IsStable(object given, string reason)
    {
        var code = (StatusCode)given;
        var failure = Assert.IsAssignableFrom<KvException>(
            KvCluster.Client.Transport.KvErrors.ToException(new RpcException(new Status(code, "no details")), CancellationToken.None));
        Assert.Equal((reason, "no details"), (failure.Reason, failure.Message));
        Assert.Equal(reason, KvCluster.Client.Transport.KvErrors.ToException(new Google.Rpc.Status { Code = (int)code }).Reason);
    }

    /// <summary>They gave a NullReferenceException, some of them only later.</summary>
    [Fact]
    public async Task Arguments_ThatAreNull_AreRefusedByName()
    {
        await using var client = new KvClient("http://127.0.0.1:1");
        await using var load = client.BulkLoad();
        object[] receivers = [client, client.Sets, client.Sessions, client.Admin, new KvWrite(), new KvTransaction(), new KvWrite().Operations, load];
        var context = new NullabilityInfoContext();
        foreach (var constructor in typeof(KvClient).GetConstructors())
            Assert.IsType<ArgumentNullException>(Assert.Throws<TargetInvocationException>(() => constructor.Invoke([null])).InnerException);
        var seen = 0;
        foreach (var receiver in receivers)
        {
            foreach (var method in receiver.GetType().GetMethods(BindingFlags.Public | BindingFlags.Instance | BindingFlags.DeclaredOnly))
            {
                foreach (var refused in method.GetParameters()
                    .Where(parameter => !parameter.ParameterType.IsValueType && context.Create(parameter).WriteState == NullabilityState.NotNull))
                {
                    seen++;
                    var arguments = method.GetParameters().Select(parameter => parameter == refused ? null : SomeOf(parameter.ParameterType)).ToArray();
                    var thrown = await Record.ExceptionAsync(() => EndAsync(method.Invoke(receiver, arguments)));
                    thrown = thrown is TargetInvocationException { InnerException: { } inner } ? inner : thrown;
                    Assert.True(thrown is ArgumentNullException, $"{receiver.GetType().Name}.{method.Name}({refused.Name}: null): {thrown}");
                }
            }
        }
        Assert.True(seen > 15, $"only {seen} parameters were found");
    }

    /// <summary>The condition was left out without a word.</summary>
    [Fact]
    public void Put_WithAConditionOfItsOwn_InAList_IsRefused()
    {
        var write = new KvWrite();
        Assert.Contains(
            "If",
            Assert.Throws<ArgumentException>(
                () => write.Operations.Put("k"u8.ToArray(), default, new KvPutOptions { Condition = KvCondition.Absent() })).Message,
            StringComparison.Ordinal);
        Assert.Equal(0, write.Count);
        write.Operations.Put("k"u8.ToArray(), default, new KvPutOptions { Sequence = true });
        Assert.Equal(1, write.Count);
    }

    /// <summary>The endpoints of a configuration were appended to the default, which then was the first to be asked.</summary>
    [Fact]
    public void Endpoints_OfAConfiguration_ReplaceTheDefault()
    {
        var configuration = new ConfigurationBuilder()
            .AddInMemoryCollection([new("Endpoints:0", "http://a:1"), new("Endpoints:1", "http://b:1"), new("Timeout", "00:00:03")]).Build();
        var options = configuration.Get<KvClientOptions>()!;
        Assert.Equal((IEnumerable<string>)["http://a:1", "http://b:1"], options.Endpoints);
        Assert.Equal((IEnumerable<string>)["http://127.0.0.1:7400"], new KvClientOptions().EndpointsInUse);
    }

    private static object? SomeOf(System.Type type) => type == typeof(string) ? "k"
        : type == typeof(IReadOnlyList<KvKey>) || type == typeof(IEnumerable<KvKey>) ? new KvKey[] { "k" }
        : type.IsValueType ? Activator.CreateInstance(type)
        : type.GetConstructor([]) is { } constructor ? constructor.Invoke([])
        : null;

    // Awaits what a call returned, whatever it is.
    private static async Task EndAsync(object? result)
    {
        if (result is not null && result.GetType().GetMethod("AsTask") is { } asTask)
            result = asTask.Invoke(result, []);
        if (result is Task task)
            await task.WaitAsync(Eventually.Limit);
    }

    private static async Task<WebApplication> ServerAsync(HttpProtocols protocols, bool isSecure)
    {
        var builder = WebApplication.CreateSlimBuilder();
        builder.Logging.ClearProviders();
        builder.WebHost.UseKestrelHttpsConfiguration();
        builder.WebHost.ConfigureKestrel(kestrel => kestrel.Listen(IPAddress.Loopback, 0, listen =>
        {
            listen.Protocols = protocols;
            if (isSecure)
                listen.UseHttps(SelfSigned());
        }));
        var server = builder.Build();
        server.MapGet("/", static () => "not a node");
        await server.StartAsync();
        return server;
    }

    private static string AddressOf(WebApplication server, string scheme) => $"{scheme}://127.0.0.1:{new Uri(server.Urls.Single()).Port}";

    private static X509Certificate2 SelfSigned()
    {
        using var key = RSA.Create(2_048);
        var request = new CertificateRequest("CN=127.0.0.1", key, HashAlgorithmName.SHA256, RSASignaturePadding.Pkcs1);
        using var made = request.CreateSelfSigned(DateTimeOffset.UtcNow.AddDays(-1), DateTimeOffset.UtcNow.AddDays(1));
        return X509CertificateLoader.LoadPkcs12(made.Export(X509ContentType.Pfx), null);
    }
}
