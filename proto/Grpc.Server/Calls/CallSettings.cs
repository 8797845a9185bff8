using Microsoft.Extensions.Logging;

namespace Grpc.AspNetCore.Server.Calls;

/// <summary>A server's options in the form that its calls need.</summary>
internal sealed class CallSettings(GrpcServiceOptions options, MessageMemory? memory, UnreadableRequest? unreadable, RequestSizes? sizes, ILogger log)
{
    public int RequestBytesMax { get; } = options.MaxReceiveMessageSize ?? int.MaxValue;

    public int ResponseBytesMax { get; } = options.MaxSendMessageSize ?? int.MaxValue;

    public bool SendsExceptionText { get; } = options.EnableDetailedErrors == true;

    /// <summary>Null if the memory held for slow callers is not limited.</summary>
    public MessageMemory? Memory { get; } = memory;

    /// <summary>Null if gRPC's own status is used.</summary>
    public UnreadableRequest? Unreadable { get; } = unreadable;

    /// <summary>Null if all methods have the same limit.</summary>
    public RequestSizes? Sizes { get; } = sizes;

    public ILogger Log { get; } = log;
}
