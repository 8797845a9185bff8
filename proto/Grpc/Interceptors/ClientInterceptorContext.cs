namespace Grpc.Core.Interceptors;

/// <summary>A call as an interceptor sees it before it is made.</summary>
internal readonly struct ClientInterceptorContext<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options)
    where TRequest : class
    where TResponse : class
{
    public Method<TRequest, TResponse> Method { get; } = method;

    public string? Host { get; } = host;

    public CallOptions Options { get; } = options;
}
