namespace Grpc.AspNetCore.Server.Calls;

/// <summary>The open calls of one connection: a feature of the connection, which the listener sets.</summary>
internal sealed class ConnectionCalls
{
    /// <summary>Counted by <see cref="OpenCalls"/> with atomic operations.</summary>
    internal int Open;

    /// <summary>Calls refused since the last one that got a place, counted in the same way.</summary>
    internal int RefusedInRow;
}
