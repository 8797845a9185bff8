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
