using KvCluster.Cli;
using KvCluster.Processes;

namespace KvCluster.Tests.Cli;

/// <summary>What a shell completes.</summary>
public sealed class CompletionTests
{
    [Theory]
    [InlineData("ge", "get")]
    [InlineData("d", "del delete doctor")]
    [InlineData("set mem", "members")]
    [InlineData("--endpoint h --gateway ge", "get")]
    [InlineData("admin coordinator ", "recover")]
    [InlineData("scan --read ", "leader quorum replica session stale")]
    [InlineData("scan --read = le", "leader")]
    [InlineData("scan --read =", "leader quorum replica session stale")]
    [InlineData("scan --read=le", "--read=leader")]
    [InlineData("scan --raw --lim", "--limit")]
    [InlineData("-o j", "json")]
    [InlineData("get --key-", "--key-base64 --key-hex")]
    [InlineData("get key --timeo", "--timeout")]
    [InlineData("get -- --key-", "")]
    [InlineData("help cond", "conditions")]
    [InlineData("completion ", "bash fish zsh")]
    [InlineData("frob ", "")]
    public void Words_ThatMayStandThere_AreFound(string line, string words) => Assert.Equal(words, string.Join(' ', Completions.Of(line.Split(' '))));

    [ToolFact("bash")]
    public async Task ScriptForBash_CompletesCommandsAndOptions()
    {
        var (exitCode, output, error) = await KvProcess.RunInShellAsync(
            "source <($KV completion bash); complete -p kv; COMP_WORDS=($KV scan --rev); COMP_CWORD=2; _kv; echo \"${COMPREPLY[@]}\"; "
            + "COMP_WORDS=($KV stat); COMP_CWORD=1; _kv; echo \"${COMPREPLY[@]}\"");
        Assert.Equal((0, "complete -o default -F _kv kv\n--reverse\nstatus\n", ""), (exitCode, output, error));
    }

    [ToolFact("bash", "zsh")]
    public async Task ScriptForZsh_IsOne() => Assert.Equal((0, "", ""), await KvProcess.RunInShellAsync("$KV completion zsh | zsh -n"));

    [ToolFact("bash", "fish")]
    public async Task ScriptForFish_IsOne() => Assert.Equal((0, "", ""), await KvProcess.RunInShellAsync("$KV completion fish | fish -n"));
}
