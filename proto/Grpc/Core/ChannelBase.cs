namespace Grpc.Core;

/// <summary>The base of channels, on which calls are made.</summary>
/// <param name="target">Authority of the server, for display.</param>
internal abstract class ChannelBase(string target)
{
    public string Target { get; } = target;

    public abstract CallInvoker CreateCallInvoker();
}
