namespace Grpc.AspNetCore.Server.Calls;

/// <summary>The open calls of one connection: a feature of it, put there by whatever listens.</summary>
internal sealed class ConnectionCalls
{
    /// <summary>Counted by <see cref="OpenCalls"/> with atomic additions.</summary>
    internal int Open;

    /// <summary>Calls refused since the last that found a place, counted in the same way.</summary>
    internal int RefusedInRow;
}
