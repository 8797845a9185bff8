using KvCluster.Disk;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Answers of many shards with one writer thread, which the test runs.</summary>
public sealed class AnswerChainTests
{
    private const int Shards = 8;
    private readonly StepExecutor _writer = new();
    private readonly StepExecutor _completions = new();
    private readonly AnswerChain[] _chains;
    private int _passedOn;

    public AnswerChainTests()
    {
        var posts = new HeldPosts(_writer, _ => _passedOn++);
        _chains = [.. Enumerable.Range(0, Shards).Select(_ => new AnswerChain(_completions, posts))];
    }

    /// <summary>Each of them was an item of the thread pool, and a message to the callers, who then came back one by one.</summary>
    [Fact]
    public void Flush_FewAnswersOfManyShards_PassesThemOnTogetherAtTheEndOfThePass()
    {
        for (var round = 1; round <= 3; round++)
        {
            foreach (var chain in _chains)
                Answer(chain, AnswerChain.FewMax);
            Assert.Equal(round - 1, _passedOn);
            while (_writer.RunOne())
            {
            }
            Assert.Equal((round, 0), (_passedOn, _completions.Count));
        }
    }

    [Theory]
    [InlineData(AnswerChain.FewMax + 1, 1)]
    [InlineData(16, 1)]
    [InlineData(17, 2)]
    public void Flush_ManyAnswersOfAShard_DoNotWait(int answers, int items)
    {
        Answer(_chains[0], answers);
        Assert.Equal((0, 0, items), (_passedOn, _writer.Count, _completions.Count));
    }

    [Fact]
    public void Flush_WhereTheWriterHasNoFurtherPass_DoesNotWait()
    {
        Answer(_chains[0], 1, mayWait: false);
        Assert.Equal((0, 1), (_writer.Count, _completions.Count));
    }

    private static void Answer(AnswerChain chain, int count, bool mayWait = true)
    {
        for (var answer = 0; answer < count; answer++)
            chain.Add(WriteRequest.Rent(), WriteResult.Of(WriteOutcome.Applied));
        chain.Flush(mayWait);
    }
}
