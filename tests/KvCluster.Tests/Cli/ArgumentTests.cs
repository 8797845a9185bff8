using System.Text;
using KvCluster.Cli;
using KvCluster.Processes;

namespace KvCluster.Tests.Cli;

/// <summary>Mistakes on the command line. Each gives exit code 2 and one line, before any call.</summary>
public sealed class ArgumentTests
{
    private const int Usage = 2;

    [ToolTheory("bash")]
    [InlineData(@"$KV put $'caf\xe9' v", "is not UTF-8")]
    [InlineData(@"$KV get $'caf\xe9'", "is not UTF-8")]
    [InlineData(@"$KV put key $'\xff'", "is not UTF-8")]
    [InlineData("$KV load f --give-up-after NaN", "--give-up-after must be from 0.1 to 86400 seconds")]
    [InlineData("$KV load f --give-up-after 0", "--give-up-after must be from 0.1 to 86400 seconds")]
    [InlineData("$KV load f --give-up-after -1", "--give-up-after must be from 0.1 to 86400 seconds")]
    [InlineData("$KV bench put --seconds 0", "--seconds must be from 0.1 to 86400 seconds")]
    [InlineData("$KV bench put --seconds NaN", "--seconds must be from 0.1 to 86400 seconds")]
    [InlineData("$KV scan --limit abc", "Cannot parse argument 'abc' for option '--limit' as a number in the allowed range.")]
    [InlineData("$KV status --shard -1", "as a number in the allowed range.")]
    [InlineData("$KV status --output xml", "Argument 'xml' not recognized. Must be one of: 'text' 'json'. See kv --help.")]
    [InlineData("$KV get k --tls-key k.pem", "--tls-key requires --tls-cert")]
    [InlineData("$KV get k --tls-ca absent.pem", "absent.pem is not usable: ")]
    [InlineData("KVCLUSTER_TLS_CA=absent.pem $KV get k", "absent.pem is not usable: ")]
    [InlineData("$KV set remove s --al", "Unrecognized option '--al'. Write -- in front of arguments that begin so.")]
    [InlineData("$KV set intersect s --json -- --t", "Unrecognized option '--json'.")]
    [InlineData("$KV admin transfer 0 --to 0", "--to 0: there is no node 0")]
    public async Task Kv_WithAWrongArgument_NamesItInOneLine(string script, string expected)
    {
        var (exitCode, output, error) = await KvProcess.RunInShellAsync(script);
        Assert.Equal((Usage, ""), (exitCode, output));
        Assert.StartsWith("kv: ", error, StringComparison.Ordinal);
        Assert.Contains(expected, error, StringComparison.Ordinal);
        Assert.Equal(error.Length - 1, error.IndexOf('\n', StringComparison.Ordinal));
    }

    [ToolFact("bash")]
    public async Task Kv_WithAnUnknownCommand_DoesNotReportAMissingOne()
    {
        var (exitCode, _, error) = await KvProcess.RunInShellAsync("$KV frob");
        Assert.Equal((Usage, "kv: Unrecognized command or argument 'frob'. See kv --help.\n"), (exitCode, error));
    }

    [ToolTheory("bash")]
    [InlineData("coordinator --data '' --listen http://127.0.0.1:0", "--data: names no directory")]
    [InlineData("run --node 1 --data '' --listen http://127.0.0.1:0 --coordinator etcd=http://127.0.0.1:9", "--data: names no directory")]
    [InlineData(@"init --nodes 1 --split-at $'caf\xe9' --coordinator etcd=http://127.0.0.1:9", "--split-at: a key is not UTF-8")]
    public async Task Node_WithAWrongArgument_NamesIt(string arguments, string expected)
    {
        var (exitCode, _, error) = await KvProcess.RunInShellAsync($"$NODE {arguments}");
        Assert.Equal(Usage, exitCode);
        Assert.StartsWith("kv-node: ", error, StringComparison.Ordinal);
        Assert.Contains(expected, error, StringComparison.Ordinal);
    }

    [ToolFact("bash")]
    public async Task CertsInit_Twice_CreatesTheDirectoryOnlyOnce()
    {
        using var folder = new TemporaryDirectory();
        var script = $"$NODE certs init '{Path.Combine(folder.Path, "made")}' --nodes 1,2 --hosts node1,10.0.0.1";
        var (exitCode, output, error) = await KvProcess.RunInShellAsync(script);
        Assert.Equal((0, ""), (exitCode, error));
        Assert.Equal(output.Split('\n', StringSplitOptions.RemoveEmptyEntries).Order(), Directory.GetFiles(Path.Combine(folder.Path, "made")).Order());
        (exitCode, _, error) = await KvProcess.RunInShellAsync(script);
        const int unavailable = 3;
        Assert.Equal(unavailable, exitCode);
        Assert.Contains("ca.pem already exists; nothing was written", error, StringComparison.Ordinal);
        (exitCode, _, error) = await KvProcess.RunInShellAsync($"$NODE certs init '{folder.Path}' --nodes 1,1 ");
        Assert.Equal((Usage, "kv-node: --nodes: '1,1' names a node twice.\n"), (exitCode, error));
    }

    /// <summary>A key may be any text, even one that has a meaning to other parsers.</summary>
    [ToolTheory("bash")]
    [InlineData("$KV get @there")]
    [InlineData(@"$KV get $'\xef\xbf\xbd'")]
    public async Task Get_OfAnOddKey_ReachesTheCluster(string script)
    {
        const int unavailable = 3;
        var (exitCode, _, _) = await KvProcess.RunInShellAsync(script);
        Assert.Equal(unavailable, exitCode);
    }

    [Theory]
    [InlineData("kv\0get\0caf\u00e9\0", null)]
    [InlineData("kv\0get\0caf\ufffd\0", null)]
    [InlineData("dotnet\0kv.dll\0get\0caf\ufffd\0", null)]
    public void FirstWrong_OfUtf8Arguments_FindsNone(string commandLine, string? expected) =>
        Assert.Equal(expected, ArgumentBytes.FirstWrong(["get", commandLine.Split('\0')[^2]], Encoding.UTF8.GetBytes(commandLine)));

    [Fact]
    public void FirstWrong_OfABrokenArgument_FindsIt()
    {
        byte[] commandLine = [.. "dotnet\0kv.dll\0put\0"u8, .. "caf"u8, 0xE9, 0, .. "\ufffd"u8, 0];
        Assert.Equal("caf\ufffd", ArgumentBytes.FirstWrong(["put", "caf\ufffd", "\ufffd"], commandLine));
        Assert.Equal("caf\ufffd", ArgumentBytes.FirstWrong(["put", "caf\ufffd", ""], []));
    }
}
