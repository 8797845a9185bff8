using System.Diagnostics;
using System.Globalization;

namespace KvCluster.Tests.Grpc.Interop;

/// <summary>@grpc/grpc-js as a client of our server. The cases are in tests/interop/client.js.</summary>
public sealed class GrpcJsClientTests(GrpcJsClientRun run) : IClassFixture<GrpcJsClientRun>
{
    [NodeTheory]
    [MemberData(nameof(InteropClientRun.Cases), MemberType = typeof(InteropClientRun))]
    public void Case(string name) => run.AssertPassed(name);
}

/// <summary>All cases of client.js.</summary>
public sealed class GrpcJsClientRun : InteropClientRun
{
    protected override string? SkipReason => NodeScripts.SkipReason;

    protected override Process Start(int port) => NodeScripts.Start("client.js", port.ToString(CultureInfo.InvariantCulture));
}
