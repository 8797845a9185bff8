using Grpc.Core;
using Grpc.Core.Interceptors;

namespace KvCluster;

/// <summary>Makes the calls of channels.</summary>
internal static class ChannelCalls
{
    /// <summary>The calls of a channel, with the failures that callers decide by whether to repeat.</summary>
    public static CallInvoker Calls(this ChannelBase channel) => channel.Intercept(MappedFailures.Instance);
}
