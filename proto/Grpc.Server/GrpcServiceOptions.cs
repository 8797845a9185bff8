using Grpc.Shared;

namespace Grpc.AspNetCore.Server;

/// <summary>What holds for all gRPC services of a server.</summary>
internal sealed class GrpcServiceOptions
{
    /// <summary>Largest request message in bytes. 4 MiB by default, as everywhere in gRPC; null: no limit.</summary>
    public int? MaxReceiveMessageSize { get; set; } = FrameFormat.MessageBytesMaxDefault;

    /// <summary>Largest response message in bytes; null, the default: no limit.</summary>
    public int? MaxSendMessageSize { get; set; }

    /// <summary>Whether the text of an unexpected exception is sent to the caller; it may tell more than a caller should know.</summary>
    public bool? EnableDetailedErrors { get; set; }

    /// <summary>Seen by every call in this order.</summary>
    public InterceptorCollection Interceptors { get; } = [];
}
