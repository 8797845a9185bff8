using KvCluster.Replication.Log;
using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation.Protocol;

/// <summary>Writes of callers at the leader: queued, appended as merged transactions, and answered when their record is published.</summary>
internal sealed class CallerWrites(SimulatedProcess process, FaultyDriver driver)
{
    private const int BatchWrites = 8;
    private const int RecordsInFlightMax = 2;

    private readonly Queue<SimulatedCall> _queue = new();
    private readonly List<(Etag Etag, SimulatedCall Call, bool Failed)> _waiting = [];
    private SimulatedTree _unpublished = new();

    /// <summary>The epoch in which it leads, or 0.</summary>
    public ulong Epoch { get; private set; }

    public void StartLeading(ulong epoch)
    {
        Epoch = epoch;
        _unpublished = process.Tree.Copy();
        foreach (var record in process.Journal.Behind(process.Published))
            _unpublished.Apply(record);
        AppendOwn([]);
    }

    public void StopLeading()
    {
        Epoch = 0;
        foreach (var (_, call, failed) in _waiting)
            call.Answer(SimulatedAnswer.Of(failed ? SimulatedOutcome.NotLeader : SimulatedOutcome.Unknown));
        _waiting.Clear();
        while (_queue.TryDequeue(out var call))
            call.Answer(SimulatedAnswer.Of(SimulatedOutcome.NotLeader));
    }

    public void Add(SimulatedCall call)
    {
        _queue.Enqueue(call);
        AppendBatches();
    }

    /// <summary>Appends merged transactions of the queued requests. Conditions see the newest unpublished state.</summary>
    public void AppendBatches()
    {
        while (process.MayAppend && _queue.Count > 0 && process.Journal.Writing < RecordsInFlightMax)
        {
            var writes = new List<SimulatedWrite>();
            var calls = new List<SimulatedCall>();
            var failed = new List<SimulatedCall>();
            while (writes.Count < BatchWrites && _queue.TryPeek(out var call))
            {
                if (call.Expected is { } expected)
                {
                    // Evaluated on the records before this batch. Keys that this batch changes wait for the next one.
                    if (writes.Exists(write => write.Key == call.Keys[0]))
                        break;
                    if (expected != _unpublished.WriteOf(call.Keys[0]))
                    {
                        failed.Add(_queue.Dequeue());
                        continue;
                    }
                }

                calls.Add(_queue.Dequeue());
                writes.AddRange(call.Keys.Select(key => new SimulatedWrite(key, call.WriteId)));
            }

            foreach (var call in failed)
                _waiting.Add((process.Journal.Last.Etag, call, true));
            if (writes.Count > 0)
            {
                var header = AppendOwn([.. writes]);
                foreach (var call in calls)
                {
                    if (driver.AnswersUnpublished)
                        call.Answer(new SimulatedAnswer(SimulatedOutcome.Applied, header.Etag, []));
                    else
                        _waiting.Add((header.Etag, call, false));
                }

                process.StepFirst();
            }

            AnswerPublished();
        }
    }

    public void AnswerPublished()
    {
        while (_waiting.Count > 0 && _waiting[0].Etag <= process.Published)
        {
            var (etag, call, failed) = _waiting[0];
            _waiting.RemoveAt(0);
            if (failed)
                process.Reads.Read(call);
            else
                call.Answer(new SimulatedAnswer(SimulatedOutcome.Applied, etag, []));
        }
    }

    private RecordRef AppendOwn(SimulatedWrite[] writes)
    {
        var journal = process.Journal;
        var change = journal.Last.Etag.Change + (ulong)Math.Max(1, writes.Length);
        var record = SimulatedRecord.Create(new Etag(Epoch, change), journal.Last.Name, writes);
        _unpublished.Apply(record);
        process.Append(record);
        process.TellFirst(new Event.RecordAppended(record.Header));
        return record.Header;
    }
}
