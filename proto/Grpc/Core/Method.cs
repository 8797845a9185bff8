namespace Grpc.Core;

/// <summary>A method of a service with the marshallers of its messages.</summary>
internal sealed class Method<TRequest, TResponse>(
    MethodType type,
    string serviceName,
    string name,
    Marshaller<TRequest> requestMarshaller,
    Marshaller<TResponse> responseMarshaller) : IMethod
{
    /// <inheritdoc/>
    public MethodType Type { get; } = type;

    /// <inheritdoc/>
    public string ServiceName { get; } = serviceName;

    /// <inheritdoc/>
    public string Name { get; } = name;

    /// <inheritdoc/>
    public string FullName { get; } = $"/{serviceName}/{name}";

    public Marshaller<TRequest> RequestMarshaller { get; } = requestMarshaller;

    public Marshaller<TResponse> ResponseMarshaller { get; } = responseMarshaller;
}

/// <summary>A method without its message types.</summary>
internal interface IMethod
{
    MethodType Type { get; }

    /// <summary>Package and service, <c>kvcluster.v1.Kv</c>.</summary>
    string ServiceName { get; }

    string Name { get; }

    /// <summary>The path of its requests, <c>/kvcluster.v1.Kv/Get</c>.</summary>
    string FullName { get; }
}

/// <summary>The four kinds of calls.</summary>
internal enum MethodType
{
    Unary,
    ClientStreaming,
    ServerStreaming,
    DuplexStreaming,
}
