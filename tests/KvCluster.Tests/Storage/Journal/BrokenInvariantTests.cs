using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Tests.Storage.Store;

namespace KvCluster.Tests.Storage.Journal;

/// <summary>
/// A broken invariant of the journal's own state. It was thrown on the journal thread, outside of any step, and ended the process with all of its shards.
/// </summary>
public sealed class BrokenInvariantTests
{
    [Theory]
    [InlineData(1)]
    [InlineData(2)]
    public void Journal_InvariantBrokenBetweenTwoSteps_EndsThatStoreAndAnswersEveryone(int writesInFlight)
    {
        BreakingExecutor? second = null;
        using var bench = new ReplicaBench(new(1), secondLane: executor => second = new BreakingExecutor(executor));
        bench.Lead(1);
        var control = bench.Store.Durable.Control;
        var answers = new List<Task<WriteResult>>();
        for (var write = 0; write < writesInFlight; write++)
        {
            answers.Add(bench.Submit(request => request.Put("a"u8, "1"u8)));
            Assert.True(bench.Store.Writes.TryAppendBatch(ReplicaBench.WallTime, out _));
        }
        answers.Add(bench.Submit(request => request.Put("b"u8, "1"u8)));
        bench.Store.Log.WriteControl(control with { Generation = 9 });
        // The first lane begins to write the records, and the control state is left for the second one.
        second!.IsBroken = true;
        bench.Run();
        Assert.Equal("broken 1", Assert.IsType<InvariantException>(bench.Store.Life.Failure).Message);
        Assert.Same(bench.Store.Life.Failure, bench.FailureTold);
        Assert.All(answers.SkipLast(1), answer => Assert.Equal(WriteOutcome.OutcomeUnknown, StoreBench.Answer(answer).Outcome));
        Assert.Equal(WriteOutcome.Stopped, StoreBench.Answer(answers[^1]).Outcome);
        Assert.DoesNotContain(bench.ControlTold, told => told.Generation == 9);
        // Nothing of the journal is busy any more, so the store can be closed and opened again.
        second.IsBroken = false;
        bench.CloseAndReopen();
        Assert.Null(bench.Store.Life.Failure);
        Assert.Equal(1ul, bench.Store.Log.Last.Change);
    }

    /// <summary>The executor of a lane. It breaks an invariant when it is asked whether it is idle, which another lane does between two of its steps.</summary>
    private sealed class BreakingExecutor(ISerialExecutor executor) : ISerialExecutor
    {
        private int _broken;

        public bool IsBroken { get; set; }

        public bool IsIdle => IsBroken ? throw new InvariantException($"broken {++_broken}") : executor.IsIdle;

        public bool IsBehind => executor.IsBehind;

        public void Post(IWorkItem item) => executor.Post(item);
    }
}
