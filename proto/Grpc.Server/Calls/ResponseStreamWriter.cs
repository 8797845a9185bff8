using Grpc.Core;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>The stream to which a handler writes its responses.</summary>
internal sealed class ResponseStreamWriter<T>(ServerCall call, Marshaller<T> marshaller) : IServerStreamWriter<T>
{
    public WriteOptions? WriteOptions { get; set; }

    public Task WriteAsync(T message)
    {
        var options = WriteOptions ?? call.WriteOptions;
        return call.Responses.WriteAsync(message, marshaller, moreFollows: options is not null && (options.Flags & WriteFlags.BufferHint) != 0);
    }

    public Task WriteAsync(T message, CancellationToken cancellationToken) =>
        cancellationToken.IsCancellationRequested ? Task.FromCanceled(cancellationToken) : WriteAsync(message);
}
