namespace Grpc.Core;

/// <summary>
/// A call that ended with a status other than OK. Thrown by clients to their callers. If a handler throws it, its status and trailers become those of the
/// call.
/// </summary>
internal sealed class RpcException : Exception
{
    public RpcException(Status status)
        : this(status, Metadata.Empty)
    {
    }

    public RpcException(Status status, string message)
        : this(status, Metadata.Empty, message)
    {
    }

    public RpcException(Status status, Metadata trailers)
        : this(status, trailers, status.ToString())
    {
    }

    public RpcException(Status status, Metadata trailers, string message)
        : base(message, status.DebugException)
    {
        Status = status;
        Trailers = trailers;
    }

    public Status Status { get; }

    public StatusCode StatusCode => Status.StatusCode;

    public Metadata Trailers { get; }
}
