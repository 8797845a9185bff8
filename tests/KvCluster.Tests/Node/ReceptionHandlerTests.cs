using System.IO.Pipelines;
using System.Net;
using System.Net.Http.Headers;
using Google.Protobuf;
using KvCluster.Node.Transport;
using KvCluster.Tests.Grpc;
using KvCluster.Tests.Grpc.Proto;

namespace KvCluster.Tests.Node;

/// <summary>A body that is received in parts, of which the stream between nodes is told.</summary>
public sealed class ReceptionHandlerTests
{
    private int _received;

    [Fact]
    public async Task Body_ThatArrivesInParts_IsToldOfEachBeforeItIsWhole()
    {
        var pipe = new Pipe();
        using var invoker = new HttpMessageInvoker(new ReceptionHandler(new Answers(pipe.Reader.AsStream()), CountPart));
        using var request = new HttpRequestMessage(HttpMethod.Post, "http://127.0.0.1:1");
        using var response = await invoker.SendAsync(request, CancellationToken.None);
        Assert.Equal("application/grpc", response.Content.Headers.ContentType?.MediaType);
        await using var body = await response.Content.ReadAsStreamAsync();
        var buffer = new byte[100];
        for (var part = 1; part <= 3; part++)
        {
            await pipe.Writer.WriteAsync(new byte[] { (byte)part, 0 });
            Assert.Equal(2, await body.ReadAsync(buffer).AsTask().WaitAsync(Eventually.Limit));
            Assert.Equal((part, part), ((int)buffer[0], _received));
        }
        await pipe.Writer.CompleteAsync();
        Assert.Equal(0, await body.ReadAsync(buffer).AsTask().WaitAsync(Eventually.Limit));
        Assert.Equal(3, _received);
    }

    [Fact]
    public async Task Channel_ForAStream_TellsWhatItReceives()
    {
        await using var server = await EchoServer.StartAsync();
        using var channel = PeerTransport.StreamChannelTo(new(1), $"http://127.0.0.1:{server.Port}", "c", credentials: null, CountPart);
        using var call = new Echo.EchoClient(channel.Calls()).Duplex();
        for (var message = 0; message < 2; message++)
        {
            Volatile.Write(ref _received, 0);
            await call.RequestStream.WriteAsync(new EchoRequest { Payload = ByteString.CopyFromUtf8("text") });
            Assert.True(await call.ResponseStream.MoveNext(CancellationToken.None).WaitAsync(Eventually.Limit));
            Assert.Equal("text", call.ResponseStream.Current.Payload.ToStringUtf8());
            Assert.InRange(Volatile.Read(ref _received), 1, int.MaxValue);
        }
    }

    private void CountPart() => Interlocked.Increment(ref _received);

    /// <summary>Answers a call with a body.</summary>
    private sealed class Answers(Stream body) : HttpMessageHandler
    {
        protected override Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellationToken)
        {
            var response = new HttpResponseMessage(HttpStatusCode.OK) { RequestMessage = request, Content = new StreamContent(body) };
            response.Content.Headers.ContentType = new MediaTypeHeaderValue("application/grpc");
            return Task.FromResult(response);
        }
    }
}
