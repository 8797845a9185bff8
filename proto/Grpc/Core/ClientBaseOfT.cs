namespace Grpc.Core;

/// <summary>The base of generated clients; knows its own type.</summary>
internal abstract class ClientBase<T> : ClientBase
    where T : ClientBase<T>
{
    /// <summary>For mocks: a client whose every call is overridden.</summary>
    protected ClientBase()
        : base(new ClientBaseConfiguration(UnimplementedCallInvoker.Instance))
    {
    }

    protected ClientBase(ChannelBase channel)
        : base(new ClientBaseConfiguration(channel.CreateCallInvoker()))
    {
    }

    protected ClientBase(CallInvoker callInvoker)
        : base(new ClientBaseConfiguration(callInvoker))
    {
    }

    protected ClientBase(ClientBaseConfiguration configuration)
        : base(configuration)
    {
    }

    protected abstract T NewInstance(ClientBaseConfiguration configuration);
}
