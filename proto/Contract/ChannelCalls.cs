using Grpc.Core;
#if !GRPC_IN_TREE
using Grpc.Core.Interceptors;
#endif

namespace KvCluster;

/// <summary>Makes the calls of channels.</summary>
internal static class ChannelCalls
{
    /// <summary>The calls of a channel. A failure has the same status with each gRPC stack, because callers decide by it whether to repeat.</summary>
    public static CallInvoker Calls(this ChannelBase channel)
    {
#if GRPC_IN_TREE
        return channel.CreateCallInvoker();
#else
        return channel.Intercept(MappedFailures.Instance);
#endif
    }
}
