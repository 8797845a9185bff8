namespace Grpc.Core;

/// <summary>The messages that a handler streams to its caller.</summary>
internal interface IServerStreamWriter<in T> : IAsyncStreamWriter<T>;
