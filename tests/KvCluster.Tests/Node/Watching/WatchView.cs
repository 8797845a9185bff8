using KvCluster.Client;

namespace KvCluster.Tests.Node.Watching;

/// <summary>What a reader keeps that applies every message of a watch in the order in which they come.</summary>
internal sealed class WatchView
{
    public SortedDictionary<string, string> Entries { get; } = new(StringComparer.Ordinal);

    /// <summary>How often it was told to forget something.</summary>
    public int Forgotten { get; private set; }

    /// <summary>How often it was told that the beginning is complete.</summary>
    public int Completions { get; private set; }

    /// <summary>Puts with an etag that it has seen before, for the same key.</summary>
    public int Repeats { get; private set; }

    private readonly HashSet<(string, Etag)> _seen = [];

    public void Apply(KvWatchMessage message)
    {
        if (message.Forget is { } range)
        {
            Forgotten++;
            Remove(range.Start, range.End);
            _seen.Clear();
        }
        foreach (var happened in message.Events)
        {
            var key = Text(happened.Key);
            Repeats += _seen.Add((key, happened.Etag)) ? 0 : 1;
            if (happened.Kind == KvEventKind.Put)
                Entries[key] = Text(happened.Value);
            else if (happened.Kind == KvEventKind.Delete)
                Entries.Remove(key);
            else if (happened.Kind == KvEventKind.DeleteRange)
                Remove(happened.Key, happened.RangeEnd);
        }
        Completions += message.IsInitialComplete ? 1 : 0;
    }

    private void Remove(ReadOnlyMemory<byte> start, ReadOnlyMemory<byte> end)
    {
        var (from, to) = (Text(start), Text(end));
        foreach (var key in Entries.Keys.Where(key => string.CompareOrdinal(key, from) >= 0
            && (to.Length == 0 || string.CompareOrdinal(key, to) < 0)).ToArray())
            Entries.Remove(key);
    }

    private static string Text(ReadOnlyMemory<byte> bytes) => System.Text.Encoding.UTF8.GetString(bytes.Span);
}
