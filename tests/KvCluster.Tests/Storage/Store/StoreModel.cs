using System.Text;
using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// A store on a <see cref="StoreBench"/> with a model of its content. The change of a request is made in the model when
/// its answer comes, and compared with the answer; answers come in the order of submission.
/// </summary>
internal sealed class StoreModel(int seed, StoreOptions options) : IDisposable
{
    private ModelContent _content = new();
    private readonly List<(ReadSnapshot Snapshot, string Expected)> _readers = [];
    private readonly Queue<ModelRequest> _waiting = new();
    private Etag _walkedCheckpoint;

    public StoreBench Bench { get; } = new(seed: seed, options: options);

    /// <summary>Open readers.</summary>
    public int Readers => _readers.Count;

    /// <summary>Requests without an answer.</summary>
    public int Waiting => _waiting.Count;

    /// <summary>Sets with members.</summary>
    public int Sets => _content.Sets.Count;

    /// <summary>Opens the store, which must have what the model has.</summary>
    public void Open()
    {
        Bench.Open();
        CheckContent();
    }

    public void Submit(Action<ModelRequest> fill)
    {
        ModelRequest? filled = null;
        var answer = Bench.Submit(request =>
        {
            filled = new ModelRequest(request, Known);
            fill(filled);
        });
        filled!.Answer = answer;
        _waiting.Enqueue(filled);
    }

    /// <summary>Makes the changes of the requests that are answered.</summary>
    public void Settle()
    {
        while (_waiting.TryPeek(out var request) && request.Answer!.IsCompleted)
        {
            _waiting.Dequeue();
            Settle(request, StoreBench.Answer(request.Answer));
        }
    }

    private void Settle(ModelRequest request, WriteResult result)
    {
        var failed = request.Conditions.FindIndex(condition => !_content.Holds(condition));
        if (result.Outcome == WriteOutcome.RangeTooLarge)
        {
            // Ranges or sets of several leaves, together with something else or not to be divided.
            Assert.Contains(failed < 0 ? request.Operations : request.Failure!, static operation => operation.Code is RequestOperation.SetDelete or RequestOperation.DeleteRange);
            Assert.True(request.Operations.Count > 1 || request.WantsResults);
            return;
        }
        if (failed >= 0 && request.Failure is null)
        {
            Assert.Equal((WriteOutcome.ConditionFailed, failed), (result.Outcome, result.FailedCondition));
            return;
        }
        Apply(request, failed < 0 ? request.Operations : request.Failure!, result, failed);
    }

    /// <summary>Runs until all requests are answered, and no longer: a checkpoint may still be in progress.</summary>
    public void AwaitAnswers()
    {
        for (Settle(); _waiting.Count > 0; Settle())
            Assert.True(Bench.Step(), $"{_waiting.Count} requests are not answered, and nothing is left to run.");
    }

    public void RunUntilIdle()
    {
        Bench.RunUntilIdle();
        AwaitAnswers();
    }

    public void OpenReader()
    {
        var snapshot = Bench.Standalone.OpenSnapshot();
        _readers.Add((snapshot, Text(snapshot)));
    }

    /// <summary>Closes a reader, which must still read what it read at first.</summary>
    public void CloseReader(int index)
    {
        using (var snapshot = _readers[index].Snapshot)
            Assert.Equal(_readers[index].Expected, Text(snapshot));
        _readers.RemoveAt(index);
    }

    public void CloseReaders()
    {
        while (_readers.Count > 0)
            CloseReader(0);
    }

    /// <summary>Ends the process, also in the middle of a checkpoint, cuts the power if told, and opens the store again. What was answered must be there.</summary>
    public void Reopen(UnsyncedWrites? powerCut)
    {
        AwaitAnswers();
        CloseReaders();
        Bench.Close();
        if (powerCut is { } unsynced)
            Bench.Disk.Restart(unsynced, seed);
        Open();
    }

    /// <summary>Compares the content if all requests are answered, and walks the pages of each finished checkpoint.</summary>
    public void Check()
    {
        Settle();
        if (_waiting.Count == 0)
            CheckContent();
        Walk();
    }

    /// <summary>Walks the pages if a checkpoint has finished since the last walk.</summary>
    public void Walk()
    {
        var covered = Bench.Store.Pages.Covered.Etag;
        if (covered == _walkedCheckpoint || Bench.Store.Checkpoints.IsRunning)
            return;
        Bench.Store.Pages.Verify();
        _walkedCheckpoint = covered;
    }

    public void Dispose()
    {
        foreach (var (snapshot, _) in _readers)
            snapshot.Dispose();
        Bench.Dispose();
    }

    private void CheckContent()
    {
        using var snapshot = Bench.Standalone.OpenSnapshot();
        var expected = Text(_content.Keys.Select(pair => (pair.Key, pair.Value.Value, pair.Value.Etag, pair.Value.Expires)).Concat(_content.Sets.Select(set => (set.Key, string.Join(' ', set.Value.Members), set.Value.Etag, false))));
        Assert.Equal(expected, Text(snapshot));
        Assert.Equal((ulong)_content.Keys.Count, Bench.Store.Statistics.Keys);
    }

    private (string? Value, Etag Etag) Known(string key) => _content.Keys.GetValueOrDefault(key) is var (value, etag, _) ? (value, etag) : default;

    private void Apply(ModelRequest request, IReadOnlyList<ModelOperation> operations, WriteResult result, int failed)
    {
        // How many changes it makes is known when it was applied to a copy, and then the etag of the first one.
        var before = _content.Copy();
        var changes = before.Apply(operations, default, request.IsExecuted);
        var first = changes.Outcome == WriteOutcome.Applied ? result.Etag with { Change = result.Etag.Change - changes.Etag.Change } : default;
        var next = _content.Copy();
        var expected = next.Apply(operations, first, request.IsExecuted, result.IsPartial ? result.Deleted : int.MaxValue);
        Assert.Equal((expected.Outcome, expected.Outcome == WriteOutcome.Applied ? failed : -1), (result.Outcome, result.FailedCondition));
        if (result.Outcome != WriteOutcome.Applied)
            return;
        _content = next;
        if (result.IsPartial)
            Assert.InRange(result.Deleted, 1, changes.KeysDeleted + Math.Max(0, changes.MembersRemoved - 1));
        Assert.Equal(expected.KeysDeleted + (request.IsExecuted ? 0 : expected.MembersRemoved), result.Deleted);
        Assert.Equal(request.WantsResults ? expected.Results : null, result.Results is null ? null : ModelOperation.ResultsOf(result.Results));
    }

    private static string Text(ReadSnapshot snapshot)
    {
        var items = new List<(string, string, Etag, bool)>();
        using var cursor = snapshot.Cursor(TreeId.Kv);
        while (cursor.MoveNext())
        {
            var value = Encoding.UTF8.GetString(KvValue.Read(cursor.Value, out var etag, out var life));
            items.Add((Encoding.UTF8.GetString(cursor.Key), value, etag, life.ExpiryMilliseconds > 0));
        }
        foreach (var (key, members) in StoreBench.SetsOf(snapshot))
        {
            Assert.True(snapshot.TryGetSet(StoreBench.Text(key), out var set));
            items.Add((key, members, set.Etag, false));
        }
        return Text(items);
    }

    private static string Text(IEnumerable<(string Key, string Value, Etag Etag, bool Expires)> items) =>
        string.Join('\n', items.Select(item => $"{item.Key} = {item.Value} @ {item.Etag}{(item.Expires ? ", expires" : "")}"));
}
