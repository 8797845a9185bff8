namespace Grpc.Core;

/// <summary>Something that calls can be made on.</summary>
/// <param name="target">Authority of the server, for people.</param>
internal abstract class ChannelBase(string target)
{
    public string Target { get; } = target;

    public abstract CallInvoker CreateCallInvoker();
}
