using Grpc.Core;
using Grpc.Net.Client.Calls;

namespace KvCluster.Tests.Grpc;

/// <summary>When the requests of a stream are sent, and that their end is.</summary>
public sealed class RequestStreamContentTests
{
    private static readonly Marshaller<byte[]> Bytes = new(static bytes => bytes, static bytes => bytes);

    /// <summary>
    /// A response that came between the last message and its end lent its thread to the caller once more. The sender left the end to whoever gives the
    /// thread back, who looked for messages only: the call stood still, once in some million streams.
    /// </summary>
    [Fact]
    public async Task Complete_WhenAResponseComesBeforeTheLastMessageIsSent_EndsTheRequest()
    {
        var content = new RequestStreamContent(1_000);
        var stream = new HeldStream();
        var sending = content.CopyToAsync(stream);
        Assert.True(content.TryWrite([1, 2, 3], Bytes, moreFollows: false, out _));
        await stream.Writes.WaitAsync(Eventually.Limit);
        // On a thread of the pool, where the sender goes on within Release.
        await Task.Run(() =>
        {
            content.Complete();
            content.Lend();
            stream.Release();
            content.TakeBack();
        });
        await sending.WaitAsync(Eventually.Limit);
    }

    /// <summary>A stream whose writes wait until they may go on.</summary>
    private sealed class HeldStream : MemoryStream
    {
        private readonly TaskCompletionSource _writes = new(TaskCreationOptions.RunContinuationsAsynchronously);
        private readonly TaskCompletionSource _released = new();

        public Task Writes => _writes.Task;

        public void Release() => _released.SetResult();

        public override async ValueTask WriteAsync(ReadOnlyMemory<byte> buffer, CancellationToken cancellationToken = default)
        {
            _writes.TrySetResult();
            await _released.Task.ConfigureAwait(false);
            await base.WriteAsync(buffer, cancellationToken).ConfigureAwait(false);
        }
    }
}
