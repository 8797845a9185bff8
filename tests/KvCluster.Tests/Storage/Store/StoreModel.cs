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
/// A store on a <see cref="StoreBench"/> with a model of its content, sorted dictionaries of keys and sets. The change of a request is made in the model when
/// its answer comes, and compared with the answer; answers come in the order of submission.
/// </summary>
internal sealed class StoreModel(int seed, StoreOptions options) : IDisposable
{
    private readonly SortedDictionary<string, (string Value, Etag Etag)> _keys = new(StringComparer.Ordinal);
    private readonly SortedDictionary<string, (SortedSet<string> Members, Etag Etag)> _sets = new(StringComparer.Ordinal);
    private readonly List<(ReadSnapshot Snapshot, string Expected)> _readers = [];
    private readonly Queue<ModelRequest> _waiting = new();
    private Etag _walkedCheckpoint;

    public StoreBench Bench { get; } = new(seed: seed, options: options);

    /// <summary>Open readers.</summary>
    public int Readers => _readers.Count;

    /// <summary>Requests without an answer.</summary>
    public int Waiting => _waiting.Count;

    /// <summary>Sets with members.</summary>
    public int Sets => _sets.Count;

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
            var result = StoreBench.Answer(request.Answer);
            var failed = request.Conditions.FindIndex(condition => !Holds(condition));
            Assert.Equal(failed, result.FailedCondition);
            if (result.Outcome == WriteOutcome.RangeTooLarge)
            {
                // A set of several leaves, together with something else.
                Assert.True(request.Operations.Count > 1 && request.Operations.Exists(operation => operation.Code == OperationCode.SetDelete));
                continue;
            }
            Assert.Equal(failed < 0 ? WriteOutcome.Applied : WriteOutcome.ConditionFailed, result.Outcome);
            if (failed < 0)
                Apply(request, result);
        }
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
        var expected = Text(_keys.Select(pair => (pair.Key, pair.Value.Value, pair.Value.Etag)).Concat(_sets.Select(set => (set.Key, string.Join(' ', set.Value.Members), set.Value.Etag))));
        Assert.Equal(expected, Text(snapshot));
        Assert.Equal((ulong)_keys.Count, Bench.Store.Statistics.Keys);
    }

    private (string? Value, Etag Etag) Known(string key) => _keys.GetValueOrDefault(key);

    private bool Holds((string Key, ConditionKind Kind, Etag Etag, string Value) condition)
    {
        var exists = _keys.TryGetValue(condition.Key, out var known);
        return condition.Kind switch
        {
            ConditionKind.Absent => !exists,
            ConditionKind.Exists => exists,
            ConditionKind.EtagEquals => known.Etag == condition.Etag,
            _ => exists && known.Value == condition.Value,
        };
    }

    private void Apply(ModelRequest request, WriteResult result)
    {
        if (request.Range is { } range)
        {
            DeleteRange(range.From, range.To, result);
            return;
        }
        var existed = false;
        var etag = result.Etag with { Change = result.Etag.Change - (ulong)request.Operations.Count };
        foreach (var (code, key, value) in request.Operations)
        {
            etag++;
            if (code == OperationCode.SetDelete)
                existed |= DeleteSet(key, etag, result);
            else if (code is OperationCode.SetAdd or OperationCode.SetRemove)
                ChangeSet(key, value!, code == OperationCode.SetAdd, etag);
            else if (value is null)
                existed |= _keys.Remove(key);
            else
                _keys[key] = (value, etag);
        }
        Assert.Equal(existed, result.Existed);
    }

    private void ChangeSet(string key, string member, bool isAdded, Etag etag)
    {
        var members = _sets.TryGetValue(key, out var set) ? set.Members : new SortedSet<string>(StringComparer.Ordinal);
        if (isAdded ? members.Add(member) : members.Remove(member))
            _sets[key] = (members, etag);
        if (members.Count == 0)
            _sets.Remove(key);
    }

    /// <summary>A set, or its first members if not all, of which only a request that does nothing else may leave some.</summary>
    private bool DeleteSet(string key, Etag etag, WriteResult result)
    {
        if (!_sets.Remove(key, out var set))
            return false;
        if (!result.IsPartial)
            return true;
        Assert.InRange(result.Deleted, 1, set.Members.Count - 1);
        _sets[key] = (new SortedSet<string>(set.Members.Skip(result.Deleted), StringComparer.Ordinal), etag);
        return true;
    }

    /// <summary>The keys of a range, or the first of them if not all.</summary>
    private void DeleteRange(string from, string to, WriteResult result)
    {
        var keys = _keys.Keys.Where(key => string.CompareOrdinal(key, from) >= 0 && string.CompareOrdinal(key, to) < 0).ToArray();
        Assert.InRange(result.Deleted, result.IsPartial ? 1 : keys.Length, keys.Length);
        foreach (var key in keys.Take(result.Deleted))
            _keys.Remove(key);
    }

    private static string Text(ReadSnapshot snapshot)
    {
        var items = new List<(string, string, Etag)>();
        using var cursor = snapshot.Cursor(TreeId.Kv);
        while (cursor.MoveNext())
        {
            var value = Encoding.UTF8.GetString(KvValue.Read(cursor.Value, out var etag));
            items.Add((Encoding.UTF8.GetString(cursor.Key), value, etag));
        }
        foreach (var (key, members) in StoreBench.SetsOf(snapshot))
        {
            Assert.True(snapshot.TryGetSet(StoreBench.Text(key), out var set));
            items.Add((key, members, set.Etag));
        }
        return Text(items);
    }

    private static string Text(IEnumerable<(string Key, string Value, Etag Etag)> items) =>
        string.Join('\n', items.Select(item => $"{item.Key} = {item.Value} @ {item.Etag}"));
}
