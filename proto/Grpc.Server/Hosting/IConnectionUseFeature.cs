using Grpc.AspNetCore.Server.Calls;

namespace Grpc.AspNetCore.Server.Hosting;

/// <summary>A feature of a connection: how it is used. A server that has too many connections gives up unused ones first, and one with too many calls refuses those of the busiest.</summary>
internal interface IConnectionUseFeature
{
    /// <summary>Its open calls.</summary>
    ConnectionCalls Calls { get; }

    /// <summary>A call came on it.</summary>
    void MarkUsed();

    /// <summary>Asks its caller to begin no more calls on it: many were refused in a row. Those that are open go on.</summary>
    void TakeNoMore();

    /// <summary>Ends it with all its calls: it went on with calls that are refused.</summary>
    void End();
}
