using System.Diagnostics;
using System.Globalization;

namespace KvCluster.Tests.Grpc.Interop;

/// <summary>All cases of client.js.</summary>
public sealed class GrpcJsClientRun : InteropClientRun
{
    protected override string? SkipReason => NodeScripts.SkipReason;

    protected override Process Start(int port) => NodeScripts.Start("client.js", port.ToString(CultureInfo.InvariantCulture));
}
