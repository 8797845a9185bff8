using System.Diagnostics;
using KvCluster.Router;
using KvCluster.ServiceDefaults.Admin;
using KvCluster.Tests.Node;
using Microsoft.Extensions.Logging.Abstractions;

namespace KvCluster.Tests.Grpc.Interop;

/// <summary>The programs of docs/other-languages.md, as they stand there, at a node and through a router.</summary>
[Trait("Turn", "3")]
public sealed class OtherLanguagesTests
{
    [NodeTheory]
    [InlineData(false)]
    [InlineData(true)]
    public Task ProgramForNode_PutsChangesAndScans(bool throughRouter) => RunAsync(throughRouter, static address =>
    {
        // Beside the packages that it requires.
        const string name = "documented.js";
        File.WriteAllText(Path.Combine(House.House.Root, "artifacts", "interop", name), ProgramOf("js", address));
        return NodeScripts.Start(name);
    });

    [GrpcioTheory]
    [InlineData(false)]
    [InlineData(true)]
    public Task ProgramForPython_PutsChangesAndScans(bool throughRouter) => RunAsync(throughRouter, static address => Python.Start(
    [
        Path.Combine(House.House.Root, "tests", "interop", "documented.py"),
        V1.KvReflection.Descriptor.SerializedData.ToBase64(),
        ProgramOf("python", address),
    ]));

    private static async Task RunAsync(bool throughRouter, Func<string, Process> start)
    {
        await using var cluster = await NodeCluster.StartAsync(1);
        await cluster.LeaderOfAsync(0);
        await using var router = throughRouter
            ? await RouterHost.StartAsync(
                new RouterOptions { Listen = "http://127.0.0.1:0", Seeds = [cluster.AddressOf(1)], Timeout = Eventually.Limit },
                new ProcessHealth(), NullLoggerFactory.Instance, CancellationToken.None)
            : null;
        using var program = start(new Uri(router?.Address ?? cluster.AddressOf(1)).Authority);
        var errors = program.StandardError.ReadToEndAsync();
        var output = await program.StandardOutput.ReadToEndAsync();
        await program.WaitForExitAsync();
        Assert.True(output == "orders/1 three pears\n", $"It printed '{output}' and '{await errors}'.");
    }

    /// <summary>
    /// The first block of a language, at another address, with paths that do not depend on the directory in which it runs, and with the time that any machine
    /// needs.
    /// </summary>
    private static string ProgramOf(string language, string address)
    {
        var page = House.House.Read("docs/other-languages.md");
        var begin = page.IndexOf($"```{language}\n", StringComparison.Ordinal) + $"```{language}\n".Length;
        return page[begin..page.IndexOf("```", begin, StringComparison.Ordinal)]
            .Replace("127.0.0.1:7400", address, StringComparison.Ordinal)
            .Replace("timeout=10", "timeout=180", StringComparison.Ordinal)
            .Replace("10_000", "180_000", StringComparison.Ordinal)
            .Replace("docs/", $"{House.House.Root}/docs/", StringComparison.Ordinal)
            .Replace("proto/Contract/", $"{House.House.Root}/proto/Contract/", StringComparison.Ordinal);
    }
}
