using KvCluster.Cli;
using KvCluster.Cli.Shell;
using KvCluster.Processes;
using KvCluster.Tests.Client;

namespace KvCluster.Tests.Cli;

/// <summary>`kv shell`: its words, its line, and commands through it.</summary>
public sealed class ShellTests
{
    private const int Usage = 2;

    [Theory]
    [InlineData("", "")]
    [InlineData("  get   a ", "get|a")]
    [InlineData("put 'a b' \"c \\\"d\\\\\" e\\ f", "put|a b|c \"d\\|e f")]
    [InlineData(@"get $'a\tb' x$'y'", "get|a\tb|x$y")]
    [InlineData("put k ''", "put|k|")]
    public void Words_OfALine_AreThoseOfAShell(string line, string words) => Assert.Equal(words, string.Join('|', ShellWords.Split(line)));

    [Theory]
    [InlineData("get 'a", "'a has no quote at its end.")]
    [InlineData("get \"a", "\"a has no quote at its end.")]
    [InlineData("get $'a", "$'a has no quote at its end.")]
    [InlineData(@"get $'\xff'", @"$'\xff' is not UTF-8. Keys that are not are given by --key-hex.")]
    public void Words_WithAMistake_AreRefused(string line, string expected) =>
        Assert.Equal(expected, Assert.Throws<CliException>(() => ShellWords.Split(line)).Message);

    [Fact]
    public void Line_IsEditedAsInBash()
    {
        var line = new EditedLine(["older", "old"]);
        line.Insert("get kez");
        line.Backspace();
        line.Insert("y\U0001F600");
        line.Backspace();
        Assert.Equal(("get key", 7), (line.Text, line.Cursor));
        line.WordLeft();
        line.Insert("a");
        line.Right();
        line.Delete();
        Assert.Equal(("get aky", "get ak"), (line.Text, line.Before));
        line.RemoveWord();
        Assert.Equal("get y", line.Text);
        line.Older();
        line.Older();
        line.Older();
        Assert.Equal(("older", 5), (line.Text, line.Cursor));
        line.Newer();
        Assert.Equal("old", line.Text);
        line.Newer();
        line.Newer();
        Assert.Equal("get y", line.Text);
        line.ToBegin();
        line.Left();
        line.RemoveToEnd();
        Assert.Equal("", line.Text);
        line.Insert("get pa");
        line.Complete("packages/");
        Assert.Equal("get packages/", line.Text);
    }

    [Theory]
    [InlineData("", "")]
    [InlineData("get", "get")]
    [InlineData("status stale set", "s")]
    [InlineData("--key-hex --key-base64", "--key-")]
    public void CommonBeginning_OfWords_IsWhatAllHave(string words, string common) =>
        Assert.Equal(common, LineEditor.CommonBeginning(words.Split(' ', StringSplitOptions.RemoveEmptyEntries)));

    [Fact]
    public async Task Keys_AreFoundUpToTheNextSlash()
    {
        await using var cluster = await FakeCluster.StartAsync(2, "p/n");
        await using (var client = cluster.Connect())
        {
            foreach (var key in (string[])["a", "p/a/1", "p/a/2", "p/a0", "p/b c", "p/z/1", "q"])
                await client.PutAsync(key, "");
        }
        await using var names = new KeyNames(() => cluster.Connect(), Eventually.Limit);
        Assert.Equal(["p/a/", "p/a0", "p/z/"], await names.FindAsync("p/"));
        Assert.Equal(["p/a/1", "p/a/2"], await names.FindAsync("p/a/"));
        Assert.Equal(["a", "p/", "q"], await names.FindAsync(""));
        Assert.Empty(await names.FindAsync("x"));
    }

    [ToolFact("bash")]
    public async Task Shell_OfAPipe_ExecutesItsLines_AndEndsAsTheLastOne()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        var (exitCode, output, error) = await KvProcess.RunInShellAsync(
            "printf \"put k 'a b' -o json\\n# comment\\n\\nkv get k\\nfrob\\nshell\\nput k -\\nget k -o json\\nexit\\nget absent\\n\" | "
            + $"$KV shell --endpoint {cluster.Endpoint} -o value");
        Assert.Equal(0, exitCode);
        var lines = output.Split('\n', StringSplitOptions.RemoveEmptyEntries);
        Assert.Equal(3, lines.Length);
        Assert.StartsWith("{\"shard\":", lines[0], StringComparison.Ordinal);
        Assert.Equal("a b", lines[1]);
        Assert.StartsWith("{\"key\":\"k\"", lines[2], StringComparison.Ordinal);
        Assert.Contains("\"value\":\"a b\"", lines[2], StringComparison.Ordinal);
        Assert.Equal(
            "kv: Unrecognized command or argument 'frob'. See kv --help.\nkv: This is a shell of kv already.\n"
            + "kv: standard input has the commands of the shell, so none of them can read it.\n",
            error);
        (exitCode, _, _) = await KvProcess.RunInShellAsync($"printf 'get absent\\n' | $KV shell --endpoint {cluster.Endpoint}");
        Assert.Equal(1, exitCode);
        Assert.Equal(
            (Usage, "", "kv: standard input is not UTF-8. Keys that are not are given by --key-hex.\n"),
            await KvProcess.RunInShellAsync(@"printf 'get caf\xe9\n' | $KV shell"));
    }

    /// <summary>In a real terminal: a command and a key are completed, and the line before is fetched again.</summary>
    [ToolFact("bash", "tmux")]
    [Trait("Turn", "4")]
    public async Task Shell_InATerminal_CompletesCommandsAndKeys_AndHasAHistory()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        await using (var client = cluster.Connect())
            await client.PutAsync("packages/games/doom", "1993");
        using var directory = new TemporaryDirectory();
        var tmux = $"tmux -L kv-{Guid.NewGuid():N}";
        try
        {
            await RunAsync($"XDG_STATE_HOME='{directory.Path}' {tmux} -f /dev/null new-session -d -x 100 -y 20 \"$KV shell --endpoint {cluster.Endpoint}\"");
            await SeesAsync("kv>");
            foreach (var (keys, seen) in ((string, string)[])[("ge Tab", "kv> get"), ("pack Tab", "packages/"), ("Tab", "/games/"), ("Tab", "/doom")])
            {
                await RunAsync($"{tmux} send-keys {keys}");
                await SeesAsync(seen);
            }
            await RunAsync($"{tmux} send-keys Enter");
            await SeesAsync("kv> get packages/games/doom\n1993\nkv>");
            await RunAsync($"{tmux} send-keys Up Enter");
            await SeesAsync("1993\nkv> get packages/games/doom\n1993\nkv>");
            Assert.Equal(["get packages/games/doom "], await File.ReadAllLinesAsync(Path.Combine(directory.Path, "kvcluster", "history")));
        }
        finally
        {
            await KvProcess.RunInShellAsync($"{tmux} kill-server");
        }

        Task SeesAsync(string text) => Eventually.TrueAsync(async () =>
        {
            var lines = (await RunAsync($"{tmux} capture-pane -p")).Split('\n').Select(static line => line.TrimEnd());
            return string.Join('\n', lines).Contains(text, StringComparison.Ordinal);
        }, $"the terminal shows {text}");

        static async Task<string> RunAsync(string script)
        {
            var (exitCode, output, error) = await KvProcess.RunInShellAsync(script);
            Assert.True(exitCode == 0, error);
            return output;
        }
    }
}
