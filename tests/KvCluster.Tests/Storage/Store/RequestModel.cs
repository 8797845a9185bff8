using System.Text;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// What a store has after the requests that were answered. Answers are compared with it, in the order of submission, and their changes are made in it.
/// </summary>
internal sealed class RequestModel
{
    private ModelContent _content = new();

    /// <summary>Sets with members.</summary>
    public int Sets => _content.Sets.Count;

    /// <summary>Keys with values.</summary>
    public int Keys => _content.Keys.Count;

    /// <summary>The content, as <see cref="Text(in ReadSnapshot, Func{string, bool})"/> writes it.</summary>
    public string Expected
    {
        get
        {
            var keys = _content.Keys.Select(static pair => (pair.Key, pair.Value.Value, pair.Value.Etag, pair.Value.Expires));
            return Text(keys.Concat(_content.Sets.Select(static set => (set.Key, string.Join(' ', set.Value.Members), set.Value.Etag, false))));
        }
    }

    /// <summary>What the model has for a key.</summary>
    public (string? Value, Etag Etag) Known(string key) => _content.Keys.GetValueOrDefault(key) is var (value, etag, _) ? (value, etag) : default;

    /// <summary>Compares an answer with the model, and makes its changes.</summary>
    public void Settle(ModelRequest request, WriteResult result)
    {
        var failed = request.Conditions.FindIndex(condition => !_content.Holds(condition));
        if (result.Outcome == WriteOutcome.RangeTooLarge)
        {
            // Ranges or sets of several leaves, together with something else or not to be divided.
            var operations = failed < 0 ? request.Operations : request.Failure!;
            Assert.Contains(operations, static operation => operation.Code is RequestOperation.SetDelete or RequestOperation.DeleteRange);
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

    /// <summary>The content of a store, without keys that are not the model's.</summary>
    public static string Text(in ReadSnapshot snapshot, Func<string, bool>? isOther = null)
    {
        var items = new List<(string, string, Etag, bool)>();
        using var cursor = snapshot.Cursor(TreeId.Kv);
        while (cursor.MoveNext())
        {
            var key = Encoding.UTF8.GetString(cursor.Key);
            if (isOther?.Invoke(key) == true)
                continue;
            var value = Encoding.UTF8.GetString(KvValue.Read(cursor.Value, out var etag, out var life));
            items.Add((key, value, etag, life.ExpiryMilliseconds > 0));
        }
        foreach (var (key, members) in StoreBench.SetsOf(snapshot))
        {
            Assert.True(snapshot.TryGetSet(StoreBench.Text(key), out var set));
            items.Add((key, members, set.Etag, false));
        }
        return Text(items);
    }

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

    private static string Text(IEnumerable<(string Key, string Value, Etag Etag, bool Expires)> items) =>
        string.Join('\n', items.Select(item => $"{item.Key} = {item.Value} @ {item.Etag}{(item.Expires ? ", expires" : "")}"));
}
