namespace Grpc.AspNetCore.Server.Hosting;

/// <summary>A feature of a connection that wants to know whether it is used: what a server gives up first when it has too many.</summary>
internal interface IConnectionUseFeature
{
    /// <summary>A call came on it.</summary>
    void MarkUsed();
}
