using System.Collections.ObjectModel;
using Grpc.Core.Interceptors;
using Grpc.Shared;

namespace Grpc.AspNetCore.Server;

/// <summary>Options of all gRPC services of a server.</summary>
internal sealed class GrpcServiceOptions
{
    /// <summary>Largest request message in bytes. The default is 4 MiB, as in every gRPC implementation; null means no limit.</summary>
    public int? MaxReceiveMessageSize { get; set; } = FrameFormat.MessageBytesMaxDefault;

    /// <summary>Largest response message in bytes; null, the default, means no limit.</summary>
    public int? MaxSendMessageSize { get; set; }

    /// <summary>Whether the text of an unexpected exception is sent to the caller. It may reveal more than a caller should know.</summary>
    public bool? EnableDetailedErrors { get; set; }

    /// <summary>The interceptors of every call, in this order.</summary>
    public InterceptorCollection Interceptors { get; } = [];
}

/// <summary>The types of a server's interceptors. There is one instance of each, from the service provider or created with it.</summary>
internal sealed class InterceptorCollection : Collection<Type>
{
    public void Add<TInterceptor>()
        where TInterceptor : Interceptor => Add(typeof(TInterceptor));
}
