using KvCluster.Node.Shards.Loop;
using KvCluster.Storage.Context;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Threads;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Schedules;

/// <summary>Work that threads leave for others: nobody sleeps while there is some, and nothing is done twice.</summary>
internal static class ThreadScenarios
{
    /// <summary>Two threads post to one that parks whenever it finds nothing.</summary>
    public static Action WorkThread(Schedule schedule)
    {
        // Each look at this clock takes longer than a thread waits for before it parks.
        var time = new ManualTime { PerLook = TimeSpan.FromMilliseconds(1) };
        var ran = new List<int>();
        WorkThread? work = null;
        schedule.Add("first", () =>
        {
            work = new WorkThread("worker", time);
            Post(1);
            Schedule.Until(() => ran.Count == 2);
            work.Dispose();
        });
        schedule.Add("second", () =>
        {
            Schedule.Until(() => work is not null);
            Post(2);
        });
        return () => Assert.Equal([1, 2], ran.Order());

        void Post(int item) => work!.Post(new WorkAction(() => ran.Add(item)));
    }

    /// <summary>Two threads leave an event for a replica, whose turn takes all that it finds.</summary>
    public static Action Mailbox(Schedule schedule)
    {
        var writer = new SteppedExecutor();
        var taken = 0;
        ReplicaMailbox mailbox = null!;
        mailbox = new ReplicaMailbox(writer, new WorkAction(TakeTurn));
        schedule.Add("writer", () => writer.RunUntil(() => taken == 2));
        schedule.Add("one", () => mailbox.NodeSilent(default));
        schedule.Add("other", () => mailbox.NodeSilent(default));
        return () => Assert.Equal(2, taken);

        void TakeTurn()
        {
            mailbox.BeginTurn();
            while (mailbox.TryTake(out _))
                taken++;
        }
    }

    /// <summary>Two callers add requests, and the writer takes them.</summary>
    public static Action Requests(Schedule schedule)
    {
        var queue = new SteppedQueue();
        schedule.Add("writer", () => queue.TakeUntil(answered: 2));
        schedule.Add("caller", () => queue.Ask(SteppedQueue.Fill()));
        schedule.Add("other caller", () => queue.Ask(SteppedQueue.Fill()));
        return () => queue.CheckAtEnd(answered: 2, givenUp: 0);
    }

    /// <summary>Another thread gives up a request at any moment: before it is queued, while it is, and when it was answered.</summary>
    public static Action RequestGivenUp(Schedule schedule)
    {
        var queue = new SteppedQueue();
        WriteRequest? given = null;
        var life = 0L;
        schedule.Add("writer", () => queue.TakeUntil(answered: 1));
        schedule.Add("caller", () =>
        {
            var request = SteppedQueue.Fill();
            (life, given) = (request.Life, request);
            queue.Ask(request);
        });
        schedule.Add("who gives up", () =>
        {
            Schedule.Until(() => given is not null);
            given!.GiveUp(life);
        });
        return () => queue.CheckAtEnd(answered: 1, givenUp: 1);
    }

    /// <summary>A queue of requests, which the writer takes and answers.</summary>
    private sealed class SteppedQueue
    {
        private readonly SteppedExecutor _writer = new();
        private readonly RequestQueue _queue;
        private readonly List<WriteOutcome> _outcomes = [];

        public SteppedQueue()
        {
            _queue = new RequestQueue(16, 1 << 20, new MemoryAccount(long.MaxValue, new ManualTime()), _writer, new WorkAction(TakeAll), prefetch: null);
            // The pool has as many requests at the beginning of each run.
            foreach (var request in (WriteRequest[])[Fill(), Fill()])
                request.Return();
        }

        public static WriteRequest Fill()
        {
            var request = WriteRequest.Rent();
            request.Put("key"u8, "value"u8);
            return request;
        }

        /// <summary>What a caller does.</summary>
        public void Ask(WriteRequest request)
        {
            var answer = request.Completion;
            Assert.True(_queue.TryAdd(request));
            Schedule.Until(() => answer.IsCompleted);
            _outcomes.Add(answer.GetAwaiter().GetResult().Outcome);
        }

        /// <summary>What the writer does.</summary>
        public void TakeUntil(int answered) => _writer.RunUntil(() => _outcomes.Count == answered);

        public void CheckAtEnd(int answered, int givenUp)
        {
            Assert.Equal((0, 0), (_queue.Count, _queue.Bytes));
            Assert.Equal(answered, _outcomes.Count);
            Assert.All(_outcomes, static outcome => Assert.True(outcome is WriteOutcome.GivenUp or WriteOutcome.Applied, $"{outcome}"));
            Assert.InRange(_outcomes.Count(static outcome => outcome == WriteOutcome.GivenUp), 0, givenUp);
        }

        private void TakeAll()
        {
            _queue.AcknowledgeNotice();
            while (_queue.TryTake(out var request))
            {
                request.Result = WriteResult.Of(WriteOutcome.Applied);
                request.NextAnswer = null;
                request.Execute();
            }
        }
    }
}
