using KvCluster.Disk;
using KvCluster.Storage.Context;
using KvCluster.Storage.DataFile;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// A store on a <see cref="StoreBench"/> with a model of its content. The change of a request is made in the model when
/// its answer comes, and compared with the answer; answers come in the order of submission.
/// </summary>
internal sealed class StoreModel(int seed, StoreOptions options) : IDisposable
{
    private readonly RequestModel _model = new();
    private readonly List<(ReadSnapshot Snapshot, string Expected)> _readers = [];
    private readonly Queue<ModelRequest> _waiting = new();
    private Etag _walkedCheckpoint;

    public StoreBench Bench { get; } = new(seed: seed, options: options, prefetches: seed % 2 == 0);

    /// <summary>Open readers.</summary>
    public int Readers => _readers.Count;

    /// <summary>Requests without an answer.</summary>
    public int Waiting => _waiting.Count;

    /// <summary>Sets with members.</summary>
    public int Sets => _model.Sets;

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
            filled = new ModelRequest(request, _model.Known);
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
            _model.Settle(request, StoreBench.Answer(request.Answer));
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
        _readers.Add((snapshot, RequestModel.Text(snapshot)));
    }

    /// <summary>Closes a reader, which must still read what it read at first.</summary>
    public void CloseReader(int index)
    {
        using (var snapshot = _readers[index].Snapshot)
            Assert.Equal(_readers[index].Expected, RequestModel.Text(snapshot));
        _readers.RemoveAt(index);
    }

    public void CloseReaders()
    {
        while (_readers.Count > 0)
            CloseReader(0);
    }

    /// <summary>
    /// Ends the process, also in the middle of a checkpoint, cuts the power if told, and opens the store again. What was answered must be there.
    /// </summary>
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
        Assert.Equal(_model.Expected, RequestModel.Text(snapshot));
        Assert.Equal((ulong)_model.Keys, Bench.Store.Statistics.Keys);
    }
}
