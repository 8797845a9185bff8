namespace Grpc.Core;

/// <summary>The base of generated clients.</summary>
internal abstract class ClientBase
{
    protected ClientBase(ClientBaseConfiguration configuration) => CallInvoker = configuration.CallInvoker;

    protected CallInvoker CallInvoker { get; }

    /// <summary>What a generated client is made of.</summary>
    protected internal sealed class ClientBaseConfiguration(CallInvoker callInvoker)
    {
        internal CallInvoker CallInvoker { get; } = callInvoker;
    }
}
