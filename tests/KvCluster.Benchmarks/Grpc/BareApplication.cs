// The minimum for a gRPC server on Kestrel: find the frame, write it back, send the status. Ours is compared with it.
using System.Buffers;
using System.Buffers.Binary;
using Microsoft.AspNetCore.Hosting.Server;
using Microsoft.AspNetCore.Http.Features;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>An echo server without gRPC's packages.</summary>
internal sealed class BareApplication : IHttpApplication<IFeatureCollection>
{
    public IFeatureCollection CreateContext(IFeatureCollection contextFeatures) => contextFeatures;

    public void DisposeContext(IFeatureCollection context, Exception? exception)
    {
    }

    public async Task ProcessRequestAsync(IFeatureCollection context)
    {
        var isStream = context.GetRequiredFeature<IHttpRequestFeature>().Path == EchoMethods.DuplexPath;
        context.GetRequiredFeature<IHttpResponseFeature>().Headers.ContentType = "application/grpc";
        var input = context.GetRequiredFeature<IRequestBodyPipeFeature>().Reader;
        var output = context.GetRequiredFeature<IHttpResponseBodyFeature>().Writer;
        while (true)
        {
            var read = await input.ReadAsync();
            var buffer = read.Buffer;
            while (TryTakeFrame(ref buffer, out var frame))
                foreach (var part in frame)
                    output.Write(part.Span);
            input.AdvanceTo(buffer.Start, buffer.End);
            if (read.IsCompleted)
                break;
            if (isStream)
                await output.FlushAsync();
        }
        context.GetRequiredFeature<IHttpResponseTrailersFeature>().Trailers.GrpcStatus = "0";
    }

    private static bool TryTakeFrame(ref ReadOnlySequence<byte> buffer, out ReadOnlySequence<byte> frame)
    {
        frame = default;
        if (buffer.Length < 5)
            return false;
        Span<byte> header = stackalloc byte[5];
        buffer.Slice(0, 5).CopyTo(header);
        var frameBytes = 5 + BinaryPrimitives.ReadInt32BigEndian(header[1..]);
        if (buffer.Length < frameBytes)
            return false;
        frame = buffer.Slice(0, frameBytes);
        buffer = buffer.Slice(frame.End);
        return true;
    }
}
