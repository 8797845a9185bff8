using System.Diagnostics;
using System.Globalization;
using KvCluster.Tests.Grpc.Proto;

namespace KvCluster.Tests.Grpc.Interop;

/// <summary>Python's grpcio as a client of our server. The cases are in tests/interop/client.py.</summary>
public sealed class GrpcioClientTests(GrpcioClientRun run) : IClassFixture<GrpcioClientRun>
{
    [GrpcioTheory]
    [MemberData(nameof(InteropClientRun.Cases), MemberType = typeof(InteropClientRun))]
    public void Case(string name) => run.AssertPassed(name);
}

/// <summary>All cases of client.py.</summary>
public sealed class GrpcioClientRun : InteropClientRun
{
    protected override string? SkipReason => Python.SkipReason;

    protected override Process Start(int port) => Python.Start(
        Path.Combine(House.House.Root, "tests", "interop", "client.py"),
        port.ToString(CultureInfo.InvariantCulture),
        EchoReflection.Descriptor.SerializedData.ToBase64());
}
