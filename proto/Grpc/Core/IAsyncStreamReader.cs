namespace Grpc.Core;

/// <summary>The messages that the other side streams. One reader at a time.</summary>
internal interface IAsyncStreamReader<out T>
{
    /// <summary>The message that the last <see cref="MoveNext"/> found.</summary>
    T Current { get; }

    /// <summary>Waits for the next message; returns false at the end of the stream.</summary>
    /// <exception cref="RpcException">At a client: the call ended with a status other than OK.</exception>
    Task<bool> MoveNext(CancellationToken cancellationToken);
}
