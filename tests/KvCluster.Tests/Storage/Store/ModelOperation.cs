using System.Globalization;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>An operation of a request, for the model and for the store.</summary>
/// <param name="Code">What it does.</param>
/// <param name="Key">The key, that of the set, or the first one of a range.</param>
/// <param name="Text">The value, or the member of a set.</param>
internal sealed record ModelOperation(RequestOperation Code, string Key, string Text = "")
{
    /// <summary>The end of a range.</summary>
    public string End { get; init; } = "";

    public long By { get; init; }

    public ulong TtlMilliseconds { get; init; }

    public bool IsNumbered { get; init; }

    public int Limit { get; init; } = 1;

    public bool KeysOnly { get; init; }

    public bool IsRead => Code is RequestOperation.Get or RequestOperation.Scan or RequestOperation.SetGet;

    public void AddTo(WriteRequest request)
    {
        var (key, text) = (StoreBench.Text(Key), StoreBench.Text(Text));
        switch (Code)
        {
            case RequestOperation.Put:
                request.Put(key, text);
                break;
            case RequestOperation.PutOnTerms:
                request.Put(key, text, new PutTerms(TtlMilliseconds, 0, IsNumbered));
                break;
            case RequestOperation.Delete:
                request.Delete(key);
                break;
            case RequestOperation.DeleteRange:
                request.DeleteRange(key, StoreBench.Text(End));
                break;
            case RequestOperation.Increment:
                request.Increment(key, By);
                break;
            case RequestOperation.Touch:
                request.Touch(key, TtlMilliseconds);
                break;
            case RequestOperation.SetAdd:
                request.SetAdd(key, text);
                break;
            case RequestOperation.SetRemove:
                request.SetRemove(key, text);
                break;
            case RequestOperation.SetDelete:
                request.SetDelete(key);
                break;
            case RequestOperation.Get:
                request.Get(key);
                break;
            case RequestOperation.Scan:
                request.Scan(key, StoreBench.Text(End), Limit, KeysOnly);
                break;
            case RequestOperation.SetGet:
                request.SetGet(key, text);
                break;
            default:
                throw new ArgumentOutOfRangeException(nameof(request), Code, "No operation of a model.");
        }
    }

    /// <summary>What an operation did, as text.</summary>
    public static string ResultOf(
        Etag? etag, bool? existed = null, long? number = null, bool more = false, params IEnumerable<(string Key, string Value, Etag Etag)> entries) =>
            string.Create(CultureInfo.InvariantCulture, $"{etag} existed {existed} number {number} more {more} "
                + $"[{string.Join(", ", entries.Select(static entry => $"{entry.Key} = {entry.Value} @ {entry.Etag}"))}]");

    /// <summary>The encoded results of a request, as text.</summary>
    public static List<string> ResultsOf(byte[] encoded)
    {
        var texts = new List<string>();
        for (var reader = new OperationResultReader(encoded); reader.MoveNext();)
        {
            var entries = new List<(string, string, Etag)>();
            while (reader.MoveToEntry())
                entries.Add((System.Text.Encoding.UTF8.GetString(reader.EntryKey), System.Text.Encoding.UTF8.GetString(reader.EntryValue), reader.EntryEtag));
            Assert.Equal((int)reader.EntryCount, entries.Count);
            texts.Add(ResultOf(reader.Etag == Etag.None ? null : reader.Etag, reader.Existed, reader.Number, reader.More, entries));
        }
        return texts;
    }
}

/// <summary>A condition of a request, for the model and for the store.</summary>
internal sealed record ModelCondition(ConditionKind Kind, string Key, Etag Etag = default, string Text = "")
{
    public ConditionRelation Relation { get; init; } = ConditionRelation.Equal;

    /// <summary>The end of a range.</summary>
    public string End { get; init; } = "";

    public ulong? Keys { get; init; }

    public Etag? Greatest { get; init; }

    public void AddTo(WriteRequest request)
    {
        var key = StoreBench.Text(Key);
        if (Kind == ConditionKind.EtagRelates)
            request.AddEtagCondition(key, Relation, Etag);
        else if (Kind == ConditionKind.ValueRelates)
            request.AddValueCondition(key, Relation, StoreBench.Text(Text));
        else if (Kind == ConditionKind.Range)
            request.AddRangeCondition(key, StoreBench.Text(End), Keys, Greatest);
        else
            request.AddCondition(key, Kind, Etag, StoreBench.Text(Text));
    }
}
