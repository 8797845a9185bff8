using System.Diagnostics;
using System.Net;
using Grpc.Net.Client;

namespace KvCluster.Benchmarks.Grpc;

internal static class Micro
{
    private sealed class Stub : HttpMessageHandler
    {
        private static readonly byte[] frame = new byte[69];
        static Stub() { frame[4] = 64; }
        protected override async Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellationToken)
        {
            await request.Content!.CopyToAsync(Stream.Null, cancellationToken);
            foreach (var h in request.Headers.NonValidated) { }
            var r = new HttpResponseMessage(HttpStatusCode.OK) { Content = new StreamContent(new MemoryStream(frame)) };
            r.Content.Headers.TryAddWithoutValidation("Content-Type", "application/grpc");
            r.TrailingHeaders.TryAddWithoutValidation("grpc-status", "0");
            await Task.Yield();
            return r;
        }
    }

    public static async Task Run()
    {
        var ch = GrpcChannel.ForAddress("http://localhost", new GrpcChannelOptions { HttpHandler = new Stub() });
        var http = new HttpMessageInvoker(new Stub());
        var payload = new byte[64];
        var inv = ch.CreateCallInvoker();
        var uri = new Uri("http://localhost/benchmark.Echo/Unary");
        var fr = new byte[69];
        var buffer = new byte[4096];
        for (int round = 0; round < 12; round++)
        {
            for (int kind = 0; kind < 2; kind++)
            {
                var a0 = GC.GetTotalAllocatedBytes(true);
                var c0 = Process.GetCurrentProcess().TotalProcessorTime;
                var t0 = Stopwatch.GetTimestamp();
                const int N = 300000;
                if (kind == 0)
                    for (int i = 0; i < N; i++)
                    {
                        var request = new HttpRequestMessage(HttpMethod.Post, uri) { Version = HttpVersion.Version20, VersionPolicy = HttpVersionPolicy.RequestVersionExact, Content = new ByteArrayContent(fr) };
                        request.Content.Headers.TryAddWithoutValidation("Content-Type", "application/grpc");
                        request.Headers.TryAddWithoutValidation("TE", "trailers");
                        using var response = await http.SendAsync(request, CancellationToken.None).ConfigureAwait(false);
                        var stream = response.Content.ReadAsStream(CancellationToken.None);
                        var length = 0;
                        while (await stream.ReadAsync(buffer.AsMemory(length)).ConfigureAwait(false) is > 0 and var read) length += read;
                        if (!response.TrailingHeaders.NonValidated.TryGetValues("grpc-status", out var status) || status.ToString() != "0") throw new Exception();
                    }
                else
                    for (int i = 0; i < N; i++)
                    {
                        var r = await inv.AsyncUnaryCall(EchoMethods.Unary, null, default, payload).ConfigureAwait(false);
                        if (r.Length != 64) throw new Exception();
                    }
                var el = Stopwatch.GetElapsedTime(t0);
                Console.Write($"{(kind == 0 ? "bare" : "ours")} {el.TotalNanoseconds / N:F0} ns cpu {(Process.GetCurrentProcess().TotalProcessorTime - c0).TotalNanoseconds / N:F0} {(GC.GetTotalAllocatedBytes(true) - a0) / N} B   ");
            }
            Console.WriteLine();
        }
    }
}
