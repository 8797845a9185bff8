using System.Collections.Concurrent;
using KvCluster.Cli.Commands;
using KvCluster.Processes;
using KvCluster.Tests.Client;

namespace KvCluster.Tests.Cli;

/// <summary>Calls of operators that take long: whoever waits is told within five seconds that they go on.</summary>
public sealed class LongCallTests
{
    private static readonly TimeSpan SilenceMax = TimeSpan.FromSeconds(5);

    private readonly TaskCompletionSource<int> _call = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private readonly ConcurrentQueue<string> _told = new();
    private readonly ManualTime _time = new();

    [Fact]
    public async Task Call_ThatTakesLong_IsToldWithinFiveSeconds_AgainAndAgain_AndGoesOn()
    {
        var ended = LongCall.EndAsync(_call.Task, "the node works", _time, _told.Enqueue);
        _time.Advance(SilenceMax);
        await Eventually.TrueAsync(() => _told.SequenceEqual(["the node works, for 5 s so far"]), "the caller is told after five seconds");
        await Eventually.TrueAsync(() =>
        {
            _time.Advance(SilenceMax);
            return _told.Count >= 3;
        }, "the caller is told again and again");
        _call.SetResult(7);
        Assert.Equal(7, await ended);
    }

    [Fact]
    public async Task Call_ThatFailsSoon_IsNotTold_AndItsFailureIsThrown()
    {
        var ended = LongCall.EndAsync(_call.Task, "the node works", _time, _told.Enqueue);
        _call.SetException(new TimeoutException());
        await Assert.ThrowsAsync<TimeoutException>(() => ended);
        Assert.Empty(_told);
    }

    /// <summary>With --output json nothing was told, so that a script's log ended with a command of which nobody knew whether it still did anything.</summary>
    [ToolFact("bash")]
    [Trait("Turn", "3")]
    public async Task Drain_ThatTakesLong_SaysSoOnStandardError_AlsoWithJson()
    {
        await using var cluster = await FakeCluster.StartAsync(1);
        using var folder = new TemporaryDirectory();
        var mayEnd = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        cluster.Nodes[0].AdminScript = () => mayEnd.Task;
        var (forPeople, forPrograms) = (Path.Combine(folder.Path, "people"), Path.Combine(folder.Path, "programs"));
        var drains = Task.WhenAll(DrainAsync(forPeople, ""), DrainAsync(forPrograms, "--output json"));
        const string line = "kv: node 1 transfers its leaderships, for ";
        foreach (var told in (string[])[forPeople, forPrograms])
            await Eventually.TrueAsync(() => File.Exists(told) && File.ReadAllText(told).Contains(line, StringComparison.Ordinal), $"it is told in {told}");
        mayEnd.SetResult();
        var ended = await drains;
        Assert.Equal((0, "node 1 transferred 0 leaderships and takes none\n"), ended[0]);
        Assert.Equal((0, "{\"node\":1,\"draining\":true,\"given_away\":0,\"kept\":[]}\n"), ended[1]);

        async Task<(int ExitCode, string Output)> DrainAsync(string told, string options)
        {
            var (exitCode, output, _) = await KvProcess.RunInShellAsync($"$KV admin drain 1 --endpoint {cluster.Endpoint} {options} 2> '{told}'");
            return (exitCode, output);
        }
    }
}
