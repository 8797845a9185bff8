namespace Grpc.Core.Interceptors;

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
