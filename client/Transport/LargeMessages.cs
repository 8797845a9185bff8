using Grpc.Core;
using Grpc.Core.Interceptors;
using KvCluster.Wire;

namespace KvCluster.Client.Transport;

/// <summary>
/// Hands the large messages of streams to their readers without a copy. gRPC's client package reads each message into an array of the shared pool, whose
/// length is the next power of two, and the pool keeps such an array for every thread that has returned one. So a value of 8 MiB took 16 MiB besides its
/// message, many times over. Here a <see cref="LargeMessageStream"/> below the package receives a large message into the array that it stays in, and
/// leaves it in a place of the reader. The package gets an empty message instead, and the deserializer takes the one in the place. Used on any thread.
/// </summary>
/// <remarks>
/// The package reads, and calls the deserializer, in the flow of the caller that asks for the next message. So the place is in that flow, and nobody
/// else's read finds it. A limit of the channel for received messages does not see these; the <see cref="LargeMessageHandler"/> has one.
/// </remarks>
internal sealed class LargeMessages : Interceptor
{
    public static readonly LargeMessages Instance = new();

    private static readonly AsyncLocal<Place?> Reading = new();

    private LargeMessages()
    {
    }

    /// <summary>The place of the reader in whose flow this is called; null: it takes all messages from the package.</summary>
    public static Place? PlaceOfReader => Reading.Value;

    /// <summary>The message instead of which the package has an empty one, which is the caller's from now on; null: the package has the message.</summary>
    public static MessageBytes? TakeInsteadOf(DeserializationContext context) => context.PayloadLength == 0 ? Reading.Value?.Take() : null;

    public override AsyncServerStreamingCall<TResponse> AsyncServerStreamingCall<TRequest, TResponse>(
        TRequest request, ClientInterceptorContext<TRequest, TResponse> context, AsyncServerStreamingCallContinuation<TRequest, TResponse> continuation)
    {
        var call = continuation(request, context);
        return new AsyncServerStreamingCall<TResponse>(
            new Reader<TResponse>(call.ResponseStream, new Place()), call.ResponseHeadersAsync, call.GetStatus, call.GetTrailers, call.Dispose);
    }

    public override AsyncDuplexStreamingCall<TRequest, TResponse> AsyncDuplexStreamingCall<TRequest, TResponse>(
        ClientInterceptorContext<TRequest, TResponse> context, AsyncDuplexStreamingCallContinuation<TRequest, TResponse> continuation)
    {
        // The first read begins with the call (MappedFailures).
        var place = new Place();
        AsyncDuplexStreamingCall<TRequest, TResponse> call;
        Reading.Value = place;
        try
        {
            call = continuation(context);
        }
        finally
        {
            Reading.Value = null;
        }
        return new AsyncDuplexStreamingCall<TRequest, TResponse>(
            call.RequestStream,
            new Reader<TResponse>(call.ResponseStream, place), call.ResponseHeadersAsync, call.GetStatus, call.GetTrailers, call.Dispose);
    }

    /// <summary>Where the next message of a stream is between the two. Used by one of them at a time.</summary>
    internal sealed class Place
    {
        private MessageBytes? _message;

        public void Put(MessageBytes message) => _message = message;

        public MessageBytes? Take()
        {
            var message = _message;
            _message = null;
            return message;
        }
    }

    private sealed class Reader<T>(IAsyncStreamReader<T> inner, Place place) : IAsyncStreamReader<T>
    {
        public T Current => inner.Current;

        public Task<bool> MoveNext(CancellationToken cancellationToken)
        {
            Reading.Value = place;
            try
            {
                return inner.MoveNext(cancellationToken);
            }
            finally
            {
                Reading.Value = null;
            }
        }
    }
}
