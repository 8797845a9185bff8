using System.Collections.Concurrent;
using System.Diagnostics;
using Google.Protobuf.WellKnownTypes;
using Google.Rpc;
using Grpc.Core;
using KvCluster.Client;
using KvCluster.V1;

namespace KvCluster.Tests.Client.Recipes;

/// <summary>Recipes that go on by themselves wait for as long as a refusal asks. They waited for half a second, however busy a shard was.</summary>
public sealed class FailurePauseTests
{
    [Theory]
    [InlineData(null, 500)]
    [InlineData(20, 500)]
    [InlineData(2_000, 2_000)]
    [InlineData(86_400_000, 30_000)]
    public void Pause_IsWhatTheRefusalAsks_WithinBounds(int? askedMs, int expectedMs)
    {
        var busy = new KvUnavailableException(KvReasons.Busy, "busy")
        {
            RetryAfter = askedMs is { } asked ? TimeSpan.FromMilliseconds(asked) : null,
        };
        Assert.Equal(TimeSpan.FromMilliseconds(expectedMs), busy.PauseAfter(TimeSpan.FromMilliseconds(500)));
    }

    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task Recipe_RefusedAsBusy_CallsAgainAfterTheTimeThatWasAskedFor(bool isElection)
    {
        var asked = TimeSpan.FromSeconds(2);
        var times = new ConcurrentQueue<long>();
        await using var cluster = await FakeCluster.StartAsync(1);
        cluster.Nodes[0].Script = call =>
        {
            times.Enqueue(Stopwatch.GetTimestamp());
            return Task.FromResult<Reply?>(
                FakeNode.Refuse(call, StatusCode.Unavailable, "BUSY", details: new RetryInfo { RetryDelay = Duration.FromTimeSpan(asked) }));
        };
        await using var client = new KvClient(new KvClientOptions { Endpoints = [cluster.Endpoint], Timeout = TimeSpan.FromMilliseconds(300) });
        using var ended = new CancellationTokenSource();
        var running = isElection
            ? new KvElection(client, "leader").RunAsync("me", static (_, _) => Task.CompletedTask, ended.Token)
            : new KvQueue(client, "q/").RunAsync(static (_, _) => Task.CompletedTask, cancellationToken: ended.Token);
        // The client itself may send a call again when its time is nearly over.
        await Eventually.TrueAsync(() => times.Count >= 3 || running.IsCompleted, "the recipe has called again");
        await ended.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => running);
        var began = times.ToArray();
        Assert.True(Stopwatch.GetElapsedTime(began[0], began[2]) >= asked, $"{Stopwatch.GetElapsedTime(began[0], began[2])}");
    }
}
