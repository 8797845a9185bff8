using KvCluster.Processes;
using KvCluster.Tests.Client;

namespace KvCluster.Tests.Cli;

/// <summary>`kv get`, `put` and `delete` of the built program with a cluster of fake nodes: the bytes of a value, and what is reported of its key.</summary>
public sealed class ValueBytesTests
{
    private const int Internal = 70;
    private const int Usage = 2;
    private const int ConditionFailed = 4;

    [ToolFact("bash")]
    public async Task PutOfAFile_AndGetIntoAFileOrRaw_KeepEveryByte()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        using var folder = new TemporaryDirectory();
        var bytes = new byte[70_001];
        new Random(7).NextBytes(bytes);
        bytes[^1] = (byte)'\n';
        await File.WriteAllBytesAsync(Path.Combine(folder.Path, "in"), bytes);

        Assert.Equal((0, "", ""), await RunAsync(cluster, folder, "$KV put key @in > etag && $KV get key --out out && $KV get key --raw > raw"));
        Assert.Equal(bytes, await File.ReadAllBytesAsync(Path.Combine(folder.Path, "out")));
        Assert.Equal(bytes, await File.ReadAllBytesAsync(Path.Combine(folder.Path, "raw")));
    }

    [ToolTheory("bash")]
    [InlineData("@@home", "@home")]
    [InlineData("@@", "@")]
    [InlineData("@@@", "@@")]
    [InlineData("me@home", "me@home")]
    [InlineData("", "")]
    [Trait("Turn", "2")]
    public async Task Put_OfAValueWithAt_ReadsAFileOnlyAfterALeadingAt(string argument, string value)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        using var folder = new TemporaryDirectory();
        Assert.Equal((0, value, ""), await RunAsync(cluster, folder, $"$KV put key '{argument}' > etag && $KV get key --raw"));
        Assert.Equal((0, value + "\n", ""), await RunAsync(cluster, folder, "$KV get key"));
    }

    [ToolFact("bash")]
    [Trait("Turn", "2")]
    public async Task Put_OfAPipe_ReadsAllOfIt()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        using var folder = new TemporaryDirectory();
        Assert.Equal((0, "onetwo", ""), await RunAsync(cluster, folder, "$KV put key @<(printf one; printf two) > etag && $KV get key --raw"));
        Assert.Equal((0, "three", ""), await RunAsync(cluster, folder, "printf three | $KV put key - > etag && $KV get key --raw"));
    }

    [ToolTheory("bash")]
    [InlineData("$KV put key @absent", Usage, "@absent cannot be read: ")]
    [InlineData("$KV put key @.", Usage, "@. cannot be read: ")]
    [InlineData("$KV put key @", Usage, "@ is not followed by the name of a file. A value that begins with @ is written with @@.")]
    [InlineData("truncate -s 8388609 long; $KV put key @long", Usage, "@long has more than the 8388608 bytes that a value may have.")]
    [InlineData("$KV get there --out absent/file", Usage, "--out absent/file cannot be written: ")]
    [InlineData("$KV get there --out ''", Usage, "--out requires the name of a file.")]
    [InlineData("$KV get there --out /dev/full", Internal, "--out /dev/full was not written completely: ")]
    [InlineData("$KV get there --raw --output json", Usage, "--raw writes the bytes of the value, so it cannot be used with --output json.")]
    [InlineData("$KV get there --out file --output json", Usage, "--out writes the bytes of the value, so it cannot be used with --output json.")]
    [InlineData("$KV put there v --if-absent", ConditionFailed, "--if-absent: 'there' exists. Nothing was changed.")]
    [InlineData("$KV put absent v --if-exists", ConditionFailed, "--if-exists: 'absent' does not exist. Nothing was changed.")]
    [InlineData("$KV delete there --if-value other", ConditionFailed, "--if-value: 'there' has a different value or does not exist. Nothing was changed.")]
    [InlineData(
        "$KV put there v --if-etag 00000000-0000-0009-0000-000000000009", ConditionFailed,
        "--if-etag: 'there' has a different etag or does not exist. Nothing was changed.")]
    [InlineData("$KV put there v --if-absent --if-value v", Usage, "--if-absent and --if-value exclude each other. A command takes one condition.")]
    [InlineData("$KV put there v --if-etag 7", Usage, "--if-etag '7' is not an etag")]
    [Trait("Turn", "2")]
    public async Task Command_ThatFails_NamesTheOptionAndTheKey(string script, int exitCode, string expected)
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        using var folder = new TemporaryDirectory();
        var (code, output, error) = await RunAsync(cluster, folder, $"$KV put there value > etag; {script}");
        Assert.Equal((exitCode, ""), (code, output));
        Assert.StartsWith($"kv: {expected}", error, StringComparison.Ordinal);
        Assert.Equal(error.Length - 1, error.IndexOf('\n', StringComparison.Ordinal));
    }

    [ToolFact("bash")]
    public async Task Get_OfAnAbsentKey_LeavesTheFileAsItIs()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        using var folder = new TemporaryDirectory();
        Assert.Equal((1, "old", "kv: 'absent' does not exist.\n"), await RunAsync(
            cluster, folder, "printf old > file; $KV get absent --out file; code=$?; cat file; exit $code"));
    }

    [ToolFact("bash")]
    public async Task Get_OfOneKey_WaitsForNoMap()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        using var folder = new TemporaryDirectory();
        Assert.Equal((0, ""), await ExitOfAsync("$KV put key value > etag"));
        cluster.Nodes[0].MapMayGo = new TaskCompletionSource().Task;
        Assert.Equal((0, "value\n"), await ExitOfAsync("$KV get key"));

        async Task<(int ExitCode, string Output)> ExitOfAsync(string script)
        {
            var (exitCode, output, _) = await RunAsync(cluster, folder, script);
            return (exitCode, output);
        }
    }

    [ToolFact("bash")]
    [Trait("Turn", "2")]
    public async Task Get_ClusterNotFound_NamesTheKey()
    {
        var (exitCode, _, error) = await KvProcess.RunInShellAsync("$KV get greeting");
        Assert.Equal(3, exitCode);
        Assert.StartsWith("kv: 'greeting': ", error, StringComparison.Ordinal);
    }

    [ToolFact("bash")]
    public async Task Delete_ReportsWhetherTheKeyExistedAndPrintsOnlyTheEtag()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        using var folder = new TemporaryDirectory();
        var (exitCode, output, error) = await RunAsync(
            cluster, folder, "$KV put key value > etag; $KV delete key; $KV delete key --output json > /dev/null; $KV delete key > /dev/null");
        Assert.Equal((0, "kv: 'key' existed and was removed.\nkv: 'key' did not exist.\n"), (exitCode, error));
        Assert.Matches("^[0-9A-F-]{36}\n$", output);
    }

    private static Task<(int ExitCode, string Output, string Error)> RunAsync(FakeCluster cluster, TemporaryDirectory folder, string script) =>
        KvProcess.RunInShellAsync($"export KV_ENDPOINT={cluster.Endpoint}; cd '{folder.Path}'; {script}");
}
