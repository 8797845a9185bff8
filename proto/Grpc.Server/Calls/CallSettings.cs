using Microsoft.Extensions.Logging;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>A server's options as its calls need them.</summary>
internal sealed class CallSettings(GrpcServiceOptions options, MessageMemory? memory, UnreadableRequest? unreadable, RequestSizes? sizes, ILogger log)
{
    public int RequestBytesMax { get; } = options.MaxReceiveMessageSize ?? int.MaxValue;

    public int ResponseBytesMax { get; } = options.MaxSendMessageSize ?? int.MaxValue;

    public bool SendsExceptionText { get; } = options.EnableDetailedErrors == true;

    /// <summary>Null: nothing bounds what slow callers hold.</summary>
    public MessageMemory? Memory { get; } = memory;

    /// <summary>Null: the status is gRPC's own.</summary>
    public UnreadableRequest? Unreadable { get; } = unreadable;

    /// <summary>Null: the same for all methods.</summary>
    public RequestSizes? Sizes { get; } = sizes;

    public ILogger Log { get; } = log;
}
