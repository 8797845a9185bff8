namespace Grpc.Core.Interceptors;

/// <summary>Passes every call to an interceptor, which continues with the inner invoker.</summary>
internal sealed class InterceptingCallInvoker(CallInvoker inner, Interceptor interceptor) : CallInvoker
{
    public override TResponse BlockingUnaryCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request) =>
        interceptor.BlockingUnaryCall(
            request,
            new ClientInterceptorContext<TRequest, TResponse>(method, host, options),
            (message, context) => inner.BlockingUnaryCall(context.Method, context.Host, context.Options, message));

    public override AsyncUnaryCall<TResponse> AsyncUnaryCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request) =>
        interceptor.AsyncUnaryCall(
            request,
            new ClientInterceptorContext<TRequest, TResponse>(method, host, options),
            (message, context) => inner.AsyncUnaryCall(context.Method, context.Host, context.Options, message));

    public override AsyncServerStreamingCall<TResponse> AsyncServerStreamingCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request) =>
        interceptor.AsyncServerStreamingCall(
            request,
            new ClientInterceptorContext<TRequest, TResponse>(method, host, options),
            (message, context) => inner.AsyncServerStreamingCall(context.Method, context.Host, context.Options, message));

    public override AsyncClientStreamingCall<TRequest, TResponse> AsyncClientStreamingCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options) =>
        interceptor.AsyncClientStreamingCall(
            new ClientInterceptorContext<TRequest, TResponse>(method, host, options),
            context => inner.AsyncClientStreamingCall(context.Method, context.Host, context.Options));

    public override AsyncDuplexStreamingCall<TRequest, TResponse> AsyncDuplexStreamingCall<TRequest, TResponse>(Method<TRequest, TResponse> method, string? host, CallOptions options) =>
        interceptor.AsyncDuplexStreamingCall(
            new ClientInterceptorContext<TRequest, TResponse>(method, host, options),
            context => inner.AsyncDuplexStreamingCall(context.Method, context.Host, context.Options));
}

/// <summary>Adds interceptors to calls.</summary>
internal static class CallInvokerExtensions
{
    public static CallInvoker Intercept(this CallInvoker invoker, Interceptor interceptor) => new InterceptingCallInvoker(invoker, interceptor);

    /// <summary>The first interceptor given is called first.</summary>
    public static CallInvoker Intercept(this CallInvoker invoker, params Interceptor[] interceptors)
    {
        foreach (var interceptor in interceptors.Reverse())
            invoker = invoker.Intercept(interceptor);
        return invoker;
    }

    public static CallInvoker Intercept(this ChannelBase channel, params Interceptor[] interceptors) => channel.CreateCallInvoker().Intercept(interceptors);
}
