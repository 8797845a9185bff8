using System.Diagnostics;
using System.Globalization;
using KvCluster.Tests.Grpc.Proto;

namespace KvCluster.Tests.Grpc.Interop;

/// <summary>All cases of client.py.</summary>
public sealed class GrpcioClientRun : InteropClientRun
{
    protected override string? SkipReason => Python.SkipReason;

    protected override Process Start(int port) => Python.Start(
        Path.Combine(House.House.Root, "tests", "interop", "client.py"),
        port.ToString(CultureInfo.InvariantCulture),
        EchoReflection.Descriptor.SerializedData.ToBase64());
}
