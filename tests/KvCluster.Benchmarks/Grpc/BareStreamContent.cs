using System.Net;

namespace KvCluster.Benchmarks.Grpc;

/// <summary>A request that never ends and gives access to its stream.</summary>
internal sealed class BareStreamContent : HttpContent
{
    private readonly TaskCompletionSource<Stream> _opened = new(TaskCreationOptions.RunContinuationsAsynchronously);

    public Task<Stream> Opened => _opened.Task;

    protected override async Task SerializeToStreamAsync(Stream stream, TransportContext? context)
    {
        await stream.FlushAsync();
        _opened.SetResult(stream);
        await Task.Delay(Timeout.Infinite);
    }

    protected override bool TryComputeLength(out long length)
    {
        length = 0;
        return false;
    }
}
