// The minimum for a gRPC client on HttpMessageInvoker: send a frame, find the frame and the status in the answer. Ours is compared with it.
using System.Buffers.Binary;
using System.Net;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>An echo client without gRPC's packages.</summary>
internal sealed class BareClient : IEchoClient
{
    private const int FrameBytes = 5 + EchoMethods.PayloadBytes;

    private readonly HttpMessageInvoker _http = new(new SocketsHttpHandler
    {
        UseProxy = false,
        AllowAutoRedirect = false,
        UseCookies = false,
        ActivityHeadersPropagator = null,
        EnableMultipleHttp2Connections = true,
    });

    private readonly byte[] _frame = new byte[FrameBytes];
    private readonly Uri _unary;
    private readonly Uri _duplex;

    public BareClient(int port)
    {
        BinaryPrimitives.WriteInt32BigEndian(_frame.AsSpan(1), EchoMethods.PayloadBytes);
        _unary = new Uri($"http://127.0.0.1:{port}{EchoMethods.UnaryPath}");
        _duplex = new Uri($"http://127.0.0.1:{port}{EchoMethods.DuplexPath}");
    }

    public async Task CallAsync(EchoCount count, CancellationToken stop)
    {
        var buffer = new byte[4096];
        while (!stop.IsCancellationRequested)
        {
            using var response = await _http.SendAsync(Request(_unary, new ByteArrayContent(_frame)), CancellationToken.None).ConfigureAwait(false);
            var stream = response.Content.ReadAsStream(CancellationToken.None);
            var length = 0;
            while (await stream.ReadAsync(buffer.AsMemory(length)).ConfigureAwait(false) is > 0 and var read)
                length += read;
            if (length != FrameBytes || BinaryPrimitives.ReadInt32BigEndian(buffer.AsSpan(1)) != EchoMethods.PayloadBytes)
                throw new InvalidDataException($"An echo of {length} bytes.");
            if (!response.TrailingHeaders.NonValidated.TryGetValues("grpc-status", out var status) || status.ToString() != "0")
                throw new InvalidDataException($"A status of {status}.");
            count.Add(1);
        }
    }

    public async Task ExchangeAsync(int callers, EchoCount count, CancellationToken stop)
    {
        var content = new BareStreamContent();
        var sending = _http.SendAsync(Request(_duplex, content), CancellationToken.None);
        var output = await content.Opened.ConfigureAwait(false);
        var frames = new byte[FrameBytes * callers];
        for (var i = 0; i < callers; i++)
            _frame.CopyTo(frames, i * FrameBytes);
        await SendAsync(callers).ConfigureAwait(false);
        using var response = await sending.ConfigureAwait(false);
        var stream = response.Content.ReadAsStream(CancellationToken.None);
        var buffer = new byte[32 * 1024];
        var held = 0;
        while (!stop.IsCancellationRequested)
        {
            held += await stream.ReadAsync(buffer.AsMemory(held)).ConfigureAwait(false);
            var whole = 0;
            while (held - whole >= FrameBytes && BinaryPrimitives.ReadInt32BigEndian(buffer.AsSpan(whole + 1)) == EchoMethods.PayloadBytes)
                whole += FrameBytes;
            count.Add(whole / FrameBytes);
            buffer.AsSpan(whole, held - whole).CopyTo(buffer);
            held -= whole;
            if (whole > 0)
                await SendAsync(whole / FrameBytes).ConfigureAwait(false);
        }

        async ValueTask SendAsync(int items)
        {
            await output.WriteAsync(frames.AsMemory(0, items * FrameBytes), CancellationToken.None).ConfigureAwait(false);
            await output.FlushAsync(CancellationToken.None).ConfigureAwait(false);
        }
    }

    public void Dispose() => _http.Dispose();

    private static HttpRequestMessage Request(Uri address, HttpContent content)
    {
        var request = new HttpRequestMessage(HttpMethod.Post, address)
        {
            Version = HttpVersion.Version20,
            VersionPolicy = HttpVersionPolicy.RequestVersionExact,
            Content = content,
        };
        content.Headers.TryAddWithoutValidation("Content-Type", "application/grpc");
        request.Headers.TryAddWithoutValidation("TE", "trailers");
        return request;
    }
}
