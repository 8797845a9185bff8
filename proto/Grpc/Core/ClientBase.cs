namespace Grpc.Core;

/// <summary>The base of generated clients.</summary>
internal abstract class ClientBase
{
    protected ClientBase(ClientBaseConfiguration configuration) => CallInvoker = configuration.CallInvoker;

    protected CallInvoker CallInvoker { get; }

    /// <summary>The configuration of a generated client.</summary>
    protected internal sealed class ClientBaseConfiguration(CallInvoker callInvoker)
    {
        internal CallInvoker CallInvoker { get; } = callInvoker;
    }
}

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

/// <summary>The base of channels, on which calls are made.</summary>
/// <param name="target">Authority of the server, for display.</param>
internal abstract class ChannelBase(string target)
{
    public string Target { get; } = target;

    public abstract CallInvoker CreateCallInvoker();
}
