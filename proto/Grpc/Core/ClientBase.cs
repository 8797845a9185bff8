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
