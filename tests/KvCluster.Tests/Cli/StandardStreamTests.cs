using System.Net;
using System.Net.Sockets;
using KvCluster.Processes;

namespace KvCluster.Tests.Cli;

/// <summary>The program's standard streams: inputs that never end, and outputs that cannot be written.</summary>
public sealed class StandardStreamTests
{
    private const int Unavailable = 3;
    private const int Interrupted = 5;
    private const int Internal = 70;
    private const int Usage = 2;

    // Far more than a pipe holds. When everything is written, the program has its signal handlers and waits for more.
    private static readonly string Lines = string.Concat(Enumerable.Range(0, 200_000).Select(number => $"k\t{number}\n"));

    [ToolFact("bash")]
    public async Task Load_TerminatedWhileItWaitsForInput_EndsAtOnceAndReportsTheLine()
    {
        var (exitCode, output, error) = (0, "", "");
        // Two seconds after the signal the program ends in any case. If the machine stalls for that long, the test tries again.
        for (var round = 0; round == 0 || (round < 5 && error.Contains("before the command ended", StringComparison.Ordinal)); round++)
        {
            using var kv = KvProcess.Start("load", "-", "--from-line", "1000001");
            await kv.WriteInputAsync(Lines);
            Signals.End(kv.Id);
            (exitCode, output, error) = await kv.WaitForEndAsync();
        }

        Assert.Equal(Interrupted, exitCode);
        Assert.Contains("acknowledged up to line 1000000", output, StringComparison.Ordinal);
        Assert.Equal("kv: interrupted: changes that were sent may have been applied\n", error);
    }

    /// <summary>A command that only reads said that changes may have been applied.</summary>
    [ToolFact("bash")]
    public async Task Verify_TerminatedWhileItWaitsForInput_SaysThatNothingWasChanged()
    {
        var (exitCode, error) = (0, "");
        for (var round = 0; round == 0 || (round < 5 && error.Contains("before the command ended", StringComparison.Ordinal)); round++)
        {
            using var kv = KvProcess.Start("verify", "-");
            // More than a pipe holds, so the program reads, and less than it reads before it compares.
            await kv.WriteInputAsync(Lines[..(100 << 10)]);
            Signals.End(kv.Id);
            (exitCode, _, error) = await kv.WaitForEndAsync();
        }

        Assert.Equal((Interrupted, "kv: interrupted: nothing was changed\n"), (exitCode, error));
    }

    [ToolTheory("bash")]
    [InlineData("get key")]
    [InlineData("scan")]
    [InlineData("count")]
    [InlineData("set members key")]
    public async Task Reader_TerminatedWhileItWaitsForTheCluster_SaysThatNothingWasChanged(string command)
    {
        var (exitCode, error) = (0, "");
        for (var round = 0; round == 0 || (round < 5 && error.Contains("before the command ended", StringComparison.Ordinal)); round++)
        {
            // Its connections are accepted, and nothing is answered on them.
            using var silent = new TcpListener(IPAddress.Loopback, 0);
            silent.Start();
            using var kv = KvProcess.Start([.. command.Split(' '), "--endpoint", $"http://{silent.LocalEndpoint}"]);
            // By then it has its signal handlers, and has begun the command.
            using var connection = await silent.AcceptSocketAsync().WaitAsync(Eventually.Limit);
            Signals.End(kv.Id);
            (exitCode, _, error) = await kv.WaitForEndAsync();
        }

        Assert.Equal((Interrupted, "kv: interrupted: nothing was changed\n"), (exitCode, error));
    }

    [ToolFact("bash")]
    public async Task Put_TerminatedTwiceWhileItWaitsForInput_EndsAsInterrupted()
    {
        using var kv = KvProcess.Start("put", "key", "-");
        await kv.WriteInputAsync(Lines);
        Signals.End(kv.Id);
        Signals.EndIfThere(kv.Id);
        var (exitCode, _, error) = await kv.WaitForEndAsync();
        Assert.Equal(Interrupted, exitCode);
        Assert.StartsWith("kv: interrupted", error, StringComparison.Ordinal);
    }

    [ToolFact("bash")]
    public async Task Put_OfTooLargeAValue_IsRefusedBeforeItFillsTheMemory()
    {
        var (exitCode, _, error) = await KvProcess.RunInShellAsync("$KV put key - < /dev/zero");
        Assert.Equal((Usage, "kv: standard input has more than the 8388608 bytes that a value may have.\n"), (exitCode, error));
    }

    [ToolTheory("bash")]
    [InlineData("$KV load - <&-", Usage, "standard input is closed")]
    [InlineData("$KV verify - <&-", Usage, "standard input is closed")]
    [InlineData("$KV put key - <&-", Usage, "standard input is closed")]
    [InlineData("$KV load - < /", Usage, "standard input cannot be read")]
    [InlineData("$KV put key - < /", Usage, "standard input cannot be read")]
    [InlineData("$KV frob 2> /dev/full", Usage, "")]
    [InlineData("$KV frob 2>&-", Usage, "")]
    [InlineData("$KV load - <&- 2>&-", Usage, "")]
    [InlineData("$KV load /nowhere > /dev/full 2> /dev/full", Usage, "")]
    [InlineData("$KV --help > /dev/full", Internal, "standard output: ")]
    [InlineData("$KV --help >&-", Internal, "standard output: it is closed")]
    public async Task Kv_WithAClosedOrFullStream_EndsWithTheMatchingExitCode(string script, int exitCode, string error)
    {
        var end = await KvProcess.RunInShellAsync(script);
        Assert.Equal(exitCode, end.ExitCode);
        if (error.Length == 0)
            Assert.Empty(end.Error);
        else
            AssertOneLine(error, end.Error);
    }

    [ToolFact("bash")]
    [Trait("Turn", "6")]
    public async Task Get_WithAFullErrorStream_KeepsItsExitCode()
    {
        var (exitCode, _, _) = await KvProcess.RunInShellAsync("$KV get key 2> /dev/full");
        Assert.Equal(Unavailable, exitCode);
    }

    private static void AssertOneLine(string expected, string error)
    {
        Assert.StartsWith("kv: ", error, StringComparison.Ordinal);
        Assert.Contains(expected, error, StringComparison.Ordinal);
        Assert.Equal(error.Length - 1, error.IndexOf('\n', StringComparison.Ordinal));
    }
}
