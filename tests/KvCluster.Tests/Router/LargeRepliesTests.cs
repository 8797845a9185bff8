using System.Runtime.ExceptionServices;
using Google.Protobuf;
using KvCluster.Client.Transport;
using KvCluster.Router.Api;

namespace KvCluster.Tests.Router;

/// <summary>Large reads take their turns, and give back what they took however they end.</summary>
public sealed class LargeRepliesTests
{
    private static readonly RoutedReply Answer = new(ByteString.CopyFromUtf8("large"), null);

    /// <summary>
    /// A read that ended between its deadline and the handler of the TimeoutException let that exception out. It ended the whole exchange of its caller: the
    /// outcome of every write that was under way there was unknown.
    /// </summary>
    [Fact]
    public async Task ReadAsync_WhoseAnswerComesAtItsDeadline_IsAnswered()
    {
        var large = new LargeReplies();
        var answer = new TaskCompletionSource<RoutedReply>();
        // The exception is seen here before any handler of it looks for the answer. Other tests throw such exceptions as well, in flows of their own.
        var isThisTest = new AsyncLocal<bool> { Value = true };
        void AnswerNow(object? sender, FirstChanceExceptionEventArgs thrown)
        {
            if (isThisTest.Value && thrown.Exception is TimeoutException)
                answer.TrySetResult(Answer);
        }
        AppDomain.CurrentDomain.FirstChanceException += AnswerNow;
        try
        {
            var reply = await large.ReadAsync(1, 100, Environment.TickCount64 + 20, _ => new ValueTask<RoutedReply>(answer.Task), CancellationToken.None);
            Assert.Equal(Answer, reply);
        }
        finally
        {
            AppDomain.CurrentDomain.FirstChanceException -= AnswerNow;
        }
    }
}
