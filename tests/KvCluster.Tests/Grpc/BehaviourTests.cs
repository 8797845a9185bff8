using System.Net;
using System.Net.Security;
using System.Security.Cryptography;
using System.Security.Cryptography.X509Certificates;
using Google.Protobuf;
using Google.Rpc;
using Grpc.Core;
using Grpc.Core.Interceptors;
using Grpc.Net.Client;
using KvCluster.Tests.Grpc.Proto;
using Microsoft.AspNetCore.Builder;
using Microsoft.AspNetCore.Hosting;
using Microsoft.AspNetCore.Server.Kestrel.Https;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.Tests.Grpc;

/// <summary>Guarantees beyond the four kinds of calls: our client against our server.</summary>
public sealed class BehaviourTests
{
    [Fact]
    public async Task Cancel_OfTheClient_ReachesTheHandler()
    {
        await using var server = await EchoServer.StartAsync();
        using var cancellation = new CancellationTokenSource();
        var call = server.Client.UnaryAsync(new EchoRequest { DelayMs = 60_000 }, cancellationToken: cancellation.Token);
        await Eventually.TrueAsync(() => server.Service.Open == 1, "the handler runs");
        await cancellation.CancelAsync();
        Assert.Equal(StatusCode.Cancelled, (await Assert.ThrowsAsync<RpcException>(async () => await call)).StatusCode);
        await Eventually.TrueAsync(() => server.Service is { Open: 0, Cancelled: 1 }, "the handler saw the cancellation");
    }

    [Fact]
    public async Task Dispose_OfAStream_ReachesTheHandler()
    {
        await using var server = await EchoServer.StartAsync();
        var call = server.Client.ServerStream(new EchoRequest { ReplyCount = 1_000_000, DelayMs = 1 });
        Assert.True(await call.ResponseStream.MoveNext());
        call.Dispose();
        await Eventually.TrueAsync(() => server.Service.Open == 0, "the handler ends");
        Assert.Equal(StatusCode.Cancelled, call.GetStatus().StatusCode);
    }

    [Fact]
    public async Task Write_InALoop_EndsWhenTheReaderIsGone()
    {
        await using var server = await EchoServer.StartAsync();
        var call = server.Client.ServerStream(new EchoRequest { ReplyCount = int.MaxValue, ReplyBytes = 1000 });
        Assert.True(await call.ResponseStream.MoveNext());
        call.Dispose();
        await Eventually.TrueAsync(() => server.Service.Open == 0, "a handler that only writes ends when nobody reads");
    }

    [Fact]
    public async Task Deadline_OfTheClient_IsKnownToTheServerAndEndsItsHandler()
    {
        await using var server = await EchoServer.StartAsync(channelOptions: TimeoutHeader.Options());
        var headers = new Metadata { { TimeoutHeader.Metadata, "100m" } };
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await server.Client.UnaryAsync(new EchoRequest { DelayMs = 60_000 }, headers));
        Assert.Equal(StatusCode.DeadlineExceeded, failure.StatusCode);
        await Eventually.TrueAsync(() => server.Service.Open == 0, "the handler ends");
    }

    // A status request that its caller gave up was still running when its deadline passed. The timer threw, and the node died.
    [Fact]
    public async Task Deadline_OfACallAlreadyReset_LeavesTheServerAlive()
    {
        await Eventually.LongEnoughAsync(TimeSpan.FromMilliseconds(500), async time =>
        {
            await using var server = await EchoServer.StartAsync();
            // Open the connection first, so that the time applies to the call alone.
            await server.Client.UnaryAsync(new EchoRequest());
            var held = new TaskCompletionSource();
            server.Service.Held = held.Task;
            using var givesUp = new CancellationTokenSource();
            using var reset = server.Client.UnaryAsync(new EchoRequest(), deadline: DateTime.UtcNow + time, cancellationToken: givesUp.Token);
            await Eventually.TrueAsync(() => server.Service.Open == 1 || reset.ResponseAsync.IsCompleted, "the handler runs");
            givesUp.Cancel();
            var ended = (await Assert.ThrowsAsync<RpcException>(async () => await reset)).StatusCode;
            // Its deadline is later than that of the call above.
            var late = server.Client.UnaryAsync(new EchoRequest(), deadline: DateTime.UtcNow + time);
            Assert.Equal(StatusCode.DeadlineExceeded, (await Assert.ThrowsAsync<RpcException>(async () => await late)).StatusCode);
            held.SetResult();
            await server.Client.UnaryAsync(new EchoRequest(), deadline: DateTime.UtcNow + Eventually.Limit);
            await Eventually.TrueAsync(() => server.Service.Open == 0, "all handlers have returned");
            if (ended == StatusCode.DeadlineExceeded)
                return false;
            Assert.Equal(StatusCode.Cancelled, ended);
            return true;
        });
    }

    [Fact]
    public async Task Deadline_WhileTheHandlerReads_EndsTheStream()
    {
        await using var server = await EchoServer.StartAsync(channelOptions: TimeoutHeader.Options());
        using var call = server.Client.Duplex(new Metadata { { TimeoutHeader.Metadata, "100m" } });
        var failure = await Assert.ThrowsAsync<RpcException>(() => call.ResponseStream.MoveNext());
        Assert.Equal(StatusCode.DeadlineExceeded, failure.StatusCode);
    }

    [Fact]
    public async Task Deadline_PassedBeforeTheCall_SendsNothing()
    {
        await using var server = await EchoServer.StartAsync();
        var failure = await Assert.ThrowsAsync<RpcException>(
            async () => await server.Client.UnaryAsync(new EchoRequest(), deadline: DateTime.UtcNow.AddSeconds(-1)));
        Assert.Equal(StatusCode.DeadlineExceeded, failure.StatusCode);
    }

    [Fact]
    public async Task Timeout_ThatIsMalformed_IsIgnored()
    {
        await using var server = await EchoServer.StartAsync(channelOptions: TimeoutHeader.Options());
        foreach (var malformed in new[] { "", "5", "m", "123456789m", "-1m", "1x", "1.5S" })
            await server.Client.UnaryAsync(new EchoRequest(), new Metadata { { TimeoutHeader.Metadata, malformed } });
    }

    [Fact]
    public async Task StatusDetails_OfAHandler_ReachTheCaller()
    {
        var interceptor = new Throwing(new Google.Rpc.Status
        {
            Code = (int)StatusCode.Unavailable,
            Message = "no leader",
            Details = { Google.Protobuf.WellKnownTypes.Any.Pack(new ErrorInfo { Reason = "NO_LEADER" }) },
        }.ToRpcException());
        await using var server = await EchoServer.StartAsync(
            options => options.Interceptors.Add<Throwing>(), configureServices: services => services.AddSingleton(interceptor));
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await server.Client.UnaryAsync(new EchoRequest()));
        Assert.Equal("no leader", failure.Status.Detail);
        Assert.Equal("NO_LEADER", failure.GetRpcStatus()!.GetDetail<ErrorInfo>()!.Reason);
    }

    [Fact]
    public async Task UnexpectedException_IsUnknown_AndKeepsItsTextUnlessAsked()
    {
        await using var quiet = await EchoServer.StartAsync(
            options => options.Interceptors.Add<Throwing>(),
            configureServices: services => services.AddSingleton(new Throwing(new InvalidOperationException("secret"))));
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await quiet.Client.UnaryAsync(new EchoRequest()));
        Assert.Equal(StatusCode.Unknown, failure.StatusCode);
        Assert.DoesNotContain("secret", failure.Status.Detail);
    }

    [Fact]
    public async Task Interceptors_OfClientAndServer_SeeCallsInOrder()
    {
        var seen = new List<string>();
        await using var server = await EchoServer.StartAsync(
            options => options.Interceptors.Add<Recording>(),
            configureServices: services => services.AddSingleton(new Recording("server", seen)));
        var client = new Echo.EchoClient(server.Channel.Intercept(new Recording("first", seen), new Recording("second", seen)));
        await client.UnaryAsync(new EchoRequest());
        using var duplex = client.Duplex();
        await duplex.RequestStream.CompleteAsync();
        Assert.False(await duplex.ResponseStream.MoveNext());
        Assert.Equal(
            ["first Unary", "second Unary", "server /kvcluster.testing.Echo/Unary", "first Duplex", "second Duplex", "server /kvcluster.testing.Echo/Duplex"],
            seen);
    }

    [Fact]
    public async Task RequestOverTheLimit_IsResourceExhausted_AndTheConnectionContinues()
    {
        await using var server = await EchoServer.StartAsync(options => options.MaxReceiveMessageSize = 1000);
        var failure = await Assert.ThrowsAsync<RpcException>(
            async () => await server.Client.UnaryAsync(new EchoRequest { Payload = ByteString.CopyFrom(new byte[2000]) }));
        Assert.Equal(StatusCode.ResourceExhausted, failure.StatusCode);
        await server.Client.UnaryAsync(new EchoRequest());
        Assert.Equal(1, server.Connections);
    }

    [Fact]
    public async Task ResponseOverTheServersLimit_IsResourceExhausted()
    {
        await using var server = await EchoServer.StartAsync(options => options.MaxSendMessageSize = 1000);
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await server.Client.UnaryAsync(new EchoRequest { ReplyBytes = 2000 }));
        Assert.Equal(StatusCode.ResourceExhausted, failure.StatusCode);
    }

    [Fact]
    public async Task Messages_LargerThanKestrelsBodyLimit_PassWhereTheServerAllowsThem()
    {
        await using var server = await EchoServer.StartAsync(
            options => options.MaxReceiveMessageSize = null,
            new GrpcChannelOptions { MaxReceiveMessageSize = null });
        var payload = ByteString.CopyFrom(new byte[40_000_000]);
        Assert.Equal(payload.Length, (await server.Client.UnaryAsync(new EchoRequest { Payload = payload })).Payload.Length);
    }

    [Fact]
    public async Task BufferHint_OnASingleMessage_IsSentWithTheNext()
    {
        await using var server = await EchoServer.StartAsync();
        using var call = server.Client.Duplex();
        call.RequestStream.WriteOptions = new WriteOptions(WriteFlags.BufferHint);
        await call.RequestStream.WriteAsync(new EchoRequest { Payload = ByteString.CopyFromUtf8("1") });
        call.RequestStream.WriteOptions = null;
        await call.RequestStream.WriteAsync(new EchoRequest { Payload = ByteString.CopyFromUtf8("2") });
        foreach (var expected in new[] { "1", "2" })
        {
            Assert.True(await call.ResponseStream.MoveNext());
            Assert.Equal(expected, call.ResponseStream.Current.Payload.ToStringUtf8());
        }
    }

    [Fact]
    public async Task RequestsOtherThanGrpc_GoToTheHostsPipeline()
    {
        await using var server = await EchoServer.StartAsync(map: app => app.MapGet("/healthz", () => "fine"));
        using var http = new HttpClient { DefaultRequestVersion = HttpVersion.Version20, DefaultVersionPolicy = HttpVersionPolicy.RequestVersionExact };
        Assert.Equal("fine", await http.GetStringAsync(new Uri($"http://127.0.0.1:{server.Port}/healthz")));
    }

    [Fact]
    public async Task Tls_WithClientCertificates_ServesOnlyTrustedOnes()
    {
        using var authority = SelfSigned("server");
        using var known = SelfSigned("known");
        await using var server = await EchoServer.StartAsync(listen: options => options.UseHttps(https =>
        {
            https.ServerCertificate = authority;
            https.HandshakeTimeout = Eventually.Limit;
            https.ClientCertificateMode = ClientCertificateMode.RequireCertificate;
            https.ClientCertificateValidation = (certificate, _, _) => certificate.Thumbprint == known.Thumbprint;
        }));
        using var trusted = ChannelWith(known);
        Assert.Empty((await new Echo.EchoClient(trusted.Calls()).UnaryAsync(new EchoRequest())).Payload);
        using var stranger = SelfSigned("stranger");
        using var untrusted = ChannelWith(stranger);
        var failure = await Assert.ThrowsAsync<RpcException>(async () => await new Echo.EchoClient(untrusted.Calls()).UnaryAsync(new EchoRequest()));
        Assert.Equal(StatusCode.Unavailable, failure.StatusCode);

        GrpcChannel ChannelWith(X509Certificate2 certificate) => GrpcChannel.ForAddress($"https://localhost:{server.Port}", new GrpcChannelOptions
        {
            DisposeHttpClient = true,
            HttpHandler = new SocketsHttpHandler
            {
                SslOptions = new SslClientAuthenticationOptions
                {
                    ClientCertificates = [certificate],
                    RemoteCertificateValidationCallback = (_, presented, _, _) => presented is X509Certificate2 own && own.Thumbprint == authority.Thumbprint,
                },
            },
        });
    }

    [Fact]
    public async Task NoServer_IsUnavailable()
    {
        using var channel = GrpcChannel.ForAddress("http://127.0.0.1:1");
        var client = new Echo.EchoClient(channel.Calls());
        Assert.Equal(StatusCode.Unavailable, (await Assert.ThrowsAsync<RpcException>(async () => await client.UnaryAsync(new EchoRequest()))).StatusCode);
        using var duplex = client.Duplex();
        Assert.Equal(StatusCode.Unavailable, (await Assert.ThrowsAsync<RpcException>(() => duplex.ResponseStream.MoveNext())).StatusCode);
    }

    [Fact]
    public async Task ChannelDispose_EndsItsStreams()
    {
        await using var server = await EchoServer.StartAsync();
        using var call = server.Client.Duplex();
        await call.RequestStream.WriteAsync(new EchoRequest());
        Assert.True(await call.ResponseStream.MoveNext());
        server.Channel.Dispose();
        Assert.Equal(StatusCode.Cancelled, (await Assert.ThrowsAsync<RpcException>(() => call.ResponseStream.MoveNext())).StatusCode);
        await Eventually.TrueAsync(() => server.Service.Open == 0, "the handler ends");
    }

    private static X509Certificate2 SelfSigned(string name)
    {
        using var key = ECDsa.Create(ECCurve.NamedCurves.nistP256);
        using var certificate = new CertificateRequest($"CN={name}", key, HashAlgorithmName.SHA256)
            .CreateSelfSigned(DateTimeOffset.UtcNow.AddHours(-1), DateTimeOffset.UtcNow.AddHours(1));
        return X509CertificateLoader.LoadPkcs12(certificate.Export(X509ContentType.Pfx), null);
    }

    private sealed class Throwing(Exception failure) : Interceptor
    {
        public override Task<TResponse> UnaryServerHandler<TRequest, TResponse>(
            TRequest request, ServerCallContext context, UnaryServerMethod<TRequest, TResponse> continuation) =>
                throw failure;
    }

    private sealed class Recording(string name, List<string> seen) : Interceptor
    {
        public override AsyncUnaryCall<TResponse> AsyncUnaryCall<TRequest, TResponse>(
            TRequest request, ClientInterceptorContext<TRequest, TResponse> context, AsyncUnaryCallContinuation<TRequest, TResponse> continuation)
        {
            seen.Add($"{name} {context.Method.Name}");
            return continuation(request, context);
        }

        public override AsyncDuplexStreamingCall<TRequest, TResponse> AsyncDuplexStreamingCall<TRequest, TResponse>(
            ClientInterceptorContext<TRequest, TResponse> context, AsyncDuplexStreamingCallContinuation<TRequest, TResponse> continuation)
        {
            seen.Add($"{name} {context.Method.Name}");
            return continuation(context);
        }

        public override Task<TResponse> UnaryServerHandler<TRequest, TResponse>(
            TRequest request, ServerCallContext context, UnaryServerMethod<TRequest, TResponse> continuation)
        {
            seen.Add($"{name} {context.Method}");
            return continuation(request, context);
        }

        public override Task DuplexStreamingServerHandler<TRequest, TResponse>(
            IAsyncStreamReader<TRequest> requestStream, IServerStreamWriter<TResponse> responseStream, ServerCallContext context,
            DuplexStreamingServerMethod<TRequest, TResponse> continuation)
        {
            seen.Add($"{name} {context.Method}");
            return continuation(requestStream, responseStream, context);
        }
    }
}
