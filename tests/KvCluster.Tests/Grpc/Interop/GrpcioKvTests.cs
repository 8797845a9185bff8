using System.Globalization;
using System.Text.Json;
using Google.Protobuf.Reflection;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.Tests.Node;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Grpc.Interop;

/// <summary>
/// The service Kv from Python's grpcio, whose authors have not seen ours, at a node and through a router. The cases are in tests/interop/kv.py.
/// </summary>
[Trait("Turn", "3")]
public sealed class GrpcioKvTests
{
    private static readonly FileDescriptor[] Files =
        [Google.Rpc.StatusReflection.Descriptor, Google.Rpc.ErrorDetailsReflection.Descriptor, V1.KvReflection.Descriptor];

    [GrpcioTheory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Kv_FromPython_DoesWhatTheContractSays(bool throughRouter)
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        await using var router = throughRouter
            ? await RouterHost.StartAsync(
                new RouterOptions { Listen = "http://127.0.0.1:0", Seeds = [cluster.AddressOf(1)], Timeout = Eventually.Limit },
                new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None)
            : null;
        using var client = Python.Start(
        [
            Path.Combine(House.House.Root, "tests", "interop", "kv.py"),
            new Uri(router?.Address ?? cluster.AddressOf(1)).Port.ToString(CultureInfo.InvariantCulture),
            .. Files.Select(static file => file.SerializedData.ToBase64()),
        ]);
        var errors = client.StandardError.ReadToEndAsync();
        var cases = new Dictionary<string, string?>();
        while (await client.StandardOutput.ReadLineAsync() is { } line)
        {
            using var result = JsonDocument.Parse(line);
            cases.Add(result.RootElement.GetProperty("name").GetString()!, result.RootElement.GetProperty("failure").GetString());
        }
        await client.WaitForExitAsync();
        Assert.True(cases.Count == 11, $"{cases.Count} of 11 cases were run: {await errors}");
        Assert.Empty(cases.Where(static one => one.Value is not null).Select(static one => $"{one.Key}: {one.Value}"));
    }
}
