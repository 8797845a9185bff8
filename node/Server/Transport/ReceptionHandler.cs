// The messages of a stream are given to their reader when they are whole. A record of 16 MiB takes long over a slow network, and whoever waits for it must know
// that it comes.
using System.Runtime.CompilerServices;
using KvCluster.Wire;

namespace KvCluster.Node.Transport;

/// <summary>Tells of each part of a response's body that is received. Thread-safe.</summary>
/// <param name="inner">Sends the requests; it is disposed with this.</param>
/// <param name="received">Called for each part, by the body's reader. Must not wait.</param>
internal sealed class ReceptionHandler(HttpMessageHandler inner, Action received)
    : BodyHandler(inner, body => new ReceptionStream(body, received))
{
    /// <summary>A body that tells of its parts. Used by one reader at a time.</summary>
    private sealed class ReceptionStream(Stream body, Action tell) : BodyStream(body)
    {
        [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
        public override async ValueTask<int> ReadAsync(Memory<byte> buffer, CancellationToken cancellationToken = default)
        {
            var count = await Inner.ReadAsync(buffer, cancellationToken).ConfigureAwait(false);
            if (count > 0)
                tell();
            return count;
        }
    }
}
