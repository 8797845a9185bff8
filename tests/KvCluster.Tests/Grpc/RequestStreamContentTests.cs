using Grpc.Core;
using Grpc.Net.Client.Calls;

namespace KvCluster.Tests.Grpc;

/// <summary>When the requests of a stream are sent, and that the end of the stream is sent.</summary>
public sealed class RequestStreamContentTests
{
    private static readonly Marshaller<byte[]> Bytes = new(static bytes => bytes, static bytes => bytes);

    /// <summary>
    /// A response that arrived between the last message and its end lent its thread to the caller again. The sender left the end to the code that
    /// returns the thread, which looked for messages only. The call stalled, once in some million streams.
    /// </summary>
    [Fact]
    public async Task Complete_ResponseArrivesBeforeTheLastMessageIsSent_EndsTheRequest()
    {
        var content = new RequestStreamContent(1_000);
        var stream = new HeldStream();
        var sending = content.CopyToAsync(stream);
        Assert.True(content.TryWrite([1, 2, 3], Bytes, moreFollows: false, out _));
        await stream.Writes.WaitAsync(Eventually.Limit);
        // On a pool thread, where the sender continues within Release.
        await Task.Run(() =>
        {
            content.Complete();
            content.Lend();
            stream.Release();
            content.TakeBack();
        });
        await sending.WaitAsync(Eventually.Limit);
    }

    /// <summary>A stream whose writes wait until they are released.</summary>
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
