using System.Runtime.ExceptionServices;
using Google.Protobuf;
using KvCluster.Client.Transport;
using KvCluster.Router.Api;

namespace KvCluster.Tests.Router;

/// <summary>Large reads take turns and release their memory however they end.</summary>
public sealed class LargeRepliesTests
{
    private static readonly RoutedReply Answer = new(ByteString.CopyFromUtf8("large"), null);

    /// <summary>
    /// If a read was answered between its deadline and the handler of the TimeoutException, the exception escaped and ended the caller's whole
    /// exchange. The outcome of every write in progress there was unknown.
    /// </summary>
    [Theory]
    [InlineData(0)]
    [InlineData(20)]
    public async Task ReadAsync_AnswerArrivesAtItsDeadline_IsAnswered(int deadlineInMs)
    {
        var large = new LargeReplies();
        var answer = new TaskCompletionSource<RoutedReply>();
        // The exception is seen here before any handler looks for the answer. Other tests throw such exceptions too, in flows of their own.
        var isThisTest = new AsyncLocal<bool> { Value = true };
        void AnswerNow(object? sender, FirstChanceExceptionEventArgs thrown)
        {
            if (isThisTest.Value && thrown.Exception is TimeoutException)
                answer.TrySetResult(Answer);
        }
        AppDomain.CurrentDomain.FirstChanceException += AnswerNow;
        try
        {
            // On a thread of the pool, where the read ends within the call that answers it, also if the deadline is over before anyone waits for it.
            var reply = await Task.Run(() => large.ReadAsync(
                1, 100, Environment.TickCount64 + deadlineInMs, (_, _) => new ValueTask<RoutedReply>(answer.Task), CancellationToken.None));
            Assert.Equal(Answer, reply);
        }
        finally
        {
            AppDomain.CurrentDomain.FirstChanceException -= AnswerNow;
        }
    }

    /// <summary>
    /// A read of a stuck shard kept its bytes until the caller's deadline, possibly weeks away, even if the caller was gone. Four such reads kept all
    /// of them.
    /// </summary>
    [Theory]
    [InlineData(false)]
    [InlineData(true)]
    public async Task ReadAsync_OfAStuckShard_ReleasesItsBytes(bool isCallerGone)
    {
        // A deadline that the test does not wait for.
        var far = (int)Eventually.Limit.TotalMilliseconds * 2;
        var large = new LargeReplies(bytesMax: 100, minMs: isCallerGone ? 20 : 1, maxMs: isCallerGone ? far : 50);
        using var gone = new CancellationTokenSource();
        var began = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var stuck = large.ReadAsync(
            1,
            100,
            Environment.TickCount64 + far,
            async (untilMs, abandoned) =>
            {
                began.SetResult();
                // Like a call without an answer: it ends at its deadline or when it is cancelled.
                await Task.Delay(TimeSpan.FromMilliseconds(Math.Max(0, untilMs - Environment.TickCount64)), abandoned);
                return default;
            },
            gone.Token);
        await began.Task;
        if (isCallerGone)
        {
            await gone.CancelAsync();
            await Assert.ThrowsAnyAsync<OperationCanceledException>(() => stuck);
        }
        var next = large.ReadAsync(2, 100, Environment.TickCount64 + far, static (_, _) => ValueTask.FromResult(Answer), CancellationToken.None);
        Assert.Equal(Answer, await next.WaitAsync(Eventually.Limit));
        if (!isCallerGone)
            Assert.Equal(default(RoutedReply), await stuck);
    }
}
