using KvCluster.Processes;
using KvCluster.Tests.Client;

namespace KvCluster.Tests.Cli;

/// <summary>Names for clusters.</summary>
public sealed class ContextTests : IDisposable
{
    private const int Usage = 2;
    private const int Unavailable = 3;

    private readonly TemporaryDirectory _directory = new();

    public void Dispose() => _directory.Dispose();

    [ToolFact("bash")]
    public async Task Contexts_AreAddedUsedListedAndRemoved()
    {
        Assert.Equal((0, "one is used where no context is named\n", ""), await RunAsync("$KV context add one --endpoint 127.0.0.1:9"));
        Assert.Equal((0, "two was added\n", ""), await RunAsync("$KV context add two --endpoint h1:1,h2 --tls-ca ca.crt"));
        Assert.Equal((0, "*\tone\thttp://127.0.0.1:9\n\ttwo\thttps://h1:1,https://h2:7400\n", ""), await RunAsync("$KV context list"));
        var (_, json, _) = await RunAsync("$KV context use two -o json");
        Assert.StartsWith("{\"current\":\"two\",\"contexts\":[{\"name\":\"one\",", json, StringComparison.Ordinal);
        Assert.Contains($"\"tls_ca\":\"{Path.Combine(_directory.Path, "ca.crt")}\"", json, StringComparison.Ordinal);
        Assert.Equal((0, "one\ntwo\n", ""), await RunAsync("$KV complete -- get key --context ''"));
        Assert.Equal((0, "two was removed\n", ""), await RunAsync("$KV context remove two"));
        Assert.Equal((0, "\tone\thttp://127.0.0.1:9\n", ""), await RunAsync("$KV context list"));
    }

    [ToolFact("bash")]
    [Trait("Turn", "2")]
    public async Task Context_ThatIsUsed_ReachesItsCluster_UnlessAnotherOneIsNamed()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await RunAsync($"$KV context add away --endpoint 127.0.0.1:9; $KV context add here --endpoint {cluster.Endpoint} --use");
        Assert.Equal((0, "v\n", ""), await RunAsync("$KV put key v > etag && $KV get key"));
        Assert.Equal(Unavailable, (await RunAsync("$KV get key --timeout 0.2 --context away")).ExitCode);
        Assert.Equal(Unavailable, (await RunAsync("KVCLUSTER_CONTEXT=away $KV get key --timeout 0.2")).ExitCode);
        Assert.Equal(Unavailable, (await RunAsync("KVCLUSTER_ENDPOINT=127.0.0.1:9 $KV get key --timeout 0.2")).ExitCode);
        Assert.Equal((0, "v\n", ""), await RunAsync("KVCLUSTER_ENDPOINT=127.0.0.1:9 $KV get key --context here"));
        // Variables that mean another cluster are not mixed with it.
        Assert.Equal((0, "v\n", ""), await RunAsync("KVCLUSTER_TLS_CA=absent.pem $KV get key"));
    }

    [ToolTheory("bash")]
    [InlineData("$KV context add a/b --endpoint h", "'a/b' is not a name: letters, digits, dots, dashes and underscores.")]
    [InlineData("$KV context add one", "context add requires --endpoint.")]
    [InlineData("$KV context use", "context use takes either a NAME or --none.")]
    [InlineData(
        "$KV context add prod --endpoint h > out; $KV get k --context prdo", "There is no context 'prdo'. Did you mean prod? kv context list shows them.")]
    [InlineData("$KV get k --context prod --endpoint h", "--context and --endpoint exclude each other.")]
    [InlineData("mkdir kvcluster; echo nonsense > kvcluster/contexts.json; $KV get k", "contexts.json is not what kv context add has written: ")]
    [InlineData("mkdir kvcluster; echo '{\"contexts\":{}}' > kvcluster/contexts.json; $KV context use one", "There is no context 'one'.")]
    [Trait("Turn", "2")]
    public async Task Context_WithAMistake_IsRefusedInOneLine(string script, string expected)
    {
        var (exitCode, output, error) = await RunAsync(script);
        Assert.Equal((Usage, ""), (exitCode, output));
        Assert.Contains(expected, error, StringComparison.Ordinal);
        Assert.Equal(error.Length - 1, error.IndexOf('\n', StringComparison.Ordinal));
    }

    private Task<(int ExitCode, string Output, string Error)> RunAsync(string script) =>
        KvProcess.RunInShellAsync($"unset KV_ENDPOINT; export XDG_CONFIG_HOME='{_directory.Path}'; cd '{_directory.Path}'; {script}");
}
