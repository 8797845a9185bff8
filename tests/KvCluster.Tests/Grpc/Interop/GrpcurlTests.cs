using System.Diagnostics;
using KvCluster.Processes;
using KvCluster.ServiceDefaults.Hosting;
using KvCluster.Tests.Grpc.Proto;

namespace KvCluster.Tests.Grpc.Interop;

/// <summary>grpcurl, which learns our services by reflection only.</summary>
public sealed class GrpcurlTests
{
    [ToolFact("grpcurl")]
    public async Task List_NamesEveryService()
    {
        await using var server = await StartAsync();
        var output = await RunAsync(server, "list");
        Assert.Contains("kvcluster.testing.Echo", output);
        Assert.Contains("kvcluster.v1.Kv", output);
    }

    [ToolFact("grpcurl")]
    public async Task Call_ByReflection_IsAnswered()
    {
        await using var server = await StartAsync();
        var output = await RunAsync(server, "kvcluster.testing.Echo/Unary", """{"payload": "aGVsbG8="}""");
        Assert.Contains("\"payload\": \"aGVsbG8=\"", output);
    }

    [ToolFact("grpcurl")]
    public async Task Describe_ShowsImportedTypes()
    {
        await using var server = await StartAsync();
        Assert.Contains("repeated .kvcluster.v1.ShardRoute shards = 3;", await RunAsync(server, "describe", "kvcluster.v1.ShardMap"));
    }

    private static Task<EchoServer> StartAsync() => EchoServer.StartAsync(
        configureServices: services => services.AddReflection(Echo.Descriptor, V1.Kv.Descriptor, V1.Cluster.Descriptor),
        map: app => app.MapReflection());

    private static async Task<string> RunAsync(EchoServer server, string call, string? argument = null)
    {
        string[] arguments = call switch
        {
            "list" => ["-plaintext", $"127.0.0.1:{server.Port}", "list"],
            "describe" => ["-plaintext", $"127.0.0.1:{server.Port}", "describe", argument!],
            _ => ["-plaintext", "-d", argument!, $"127.0.0.1:{server.Port}", call],
        };
        using var process = Process.Start(
            new ProcessStartInfo(Tools.Find("grpcurl")!, arguments) { RedirectStandardOutput = true, RedirectStandardError = true })!;
        var errors = process.StandardError.ReadToEndAsync();
        var output = await process.StandardOutput.ReadToEndAsync();
        await process.WaitForExitAsync();
        Assert.True(process.ExitCode == 0, await errors);
        return output;
    }
}
