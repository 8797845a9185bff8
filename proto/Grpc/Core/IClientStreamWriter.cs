namespace Grpc.Core;

/// <summary>The messages that a caller streams to the handler.</summary>
internal interface IClientStreamWriter<in T> : IAsyncStreamWriter<T>
{
    /// <summary>Ends the messages; the handler sees the end of its stream.</summary>
    Task CompleteAsync();
}
