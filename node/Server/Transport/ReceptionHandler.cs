// The messages of a stream are given to their reader when they are whole. A record of 16 MiB takes long over a slow network, and whoever waits for it must know
// that it comes.
using System.Runtime.CompilerServices;

namespace KvCluster.Node.Transport;

/// <summary>Tells of each part of a response's body that is received. Thread-safe.</summary>
/// <param name="inner">Sends the requests; it is disposed with this.</param>
/// <param name="received">Called for each part, by the body's reader. Must not wait.</param>
internal sealed class ReceptionHandler(HttpMessageHandler inner, Action received) : DelegatingHandler(inner)
{
    protected override async Task<HttpResponseMessage> SendAsync(HttpRequestMessage request, CancellationToken cancellationToken)
    {
        var response = await base.SendAsync(request, cancellationToken).ConfigureAwait(false);
        var body = response.Content;
        // Disposing of the content disposes of the body, which ends the stream at the other side.
        var content = new StreamContent(new ReceptionStream(await body.ReadAsStreamAsync(cancellationToken).ConfigureAwait(false), received));
        foreach (var (name, values) in body.Headers.NonValidated)
            content.Headers.TryAddWithoutValidation(name, values);
        response.Content = content;
        return response;
    }

    /// <summary>A body that tells of its parts. Used by one reader at a time.</summary>
    private sealed class ReceptionStream(Stream body, Action tell) : Stream
    {
        public override bool CanRead => true;

        public override bool CanSeek => false;

        public override bool CanWrite => false;

        public override long Length => throw new NotSupportedException();

        public override long Position
        {
            get => throw new NotSupportedException();
            set => throw new NotSupportedException();
        }

        [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
        public override async ValueTask<int> ReadAsync(Memory<byte> buffer, CancellationToken cancellationToken = default)
        {
            var count = await body.ReadAsync(buffer, cancellationToken).ConfigureAwait(false);
            if (count > 0)
                tell();
            return count;
        }

        public override Task<int> ReadAsync(byte[] buffer, int offset, int count, CancellationToken cancellationToken) =>
            ReadAsync(buffer.AsMemory(offset, count), cancellationToken).AsTask();

        public override int Read(byte[] buffer, int offset, int count) => throw new NotSupportedException();

        public override void Flush()
        {
        }

        public override long Seek(long offset, SeekOrigin origin) => throw new NotSupportedException();

        public override void SetLength(long value) => throw new NotSupportedException();

        public override void Write(byte[] buffer, int offset, int count) => throw new NotSupportedException();

        protected override void Dispose(bool disposing)
        {
            if (disposing)
                body.Dispose();
            base.Dispose(disposing);
        }
    }
}
