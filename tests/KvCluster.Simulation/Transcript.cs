using System.Text;
using KvCluster.Internal.V1;

namespace KvCluster.Simulation;

/// <summary>
/// The events of a run in order: a hash over all of them, by which two runs of a seed are compared, and the last lines as text. Decisions are always
/// kept; details (every frame, every answer) only when a failed seed is run again.
/// </summary>
internal sealed class Transcript(bool detailed)
{
    private const int LinesMax = 250;

    private readonly Queue<string> _lines = new();
    private bool _hasEnded;

    public bool Detailed { get; } = detailed;

    /// <summary>The number of events so far.</summary>
    public long Steps { get; private set; }

    /// <summary>FNV-1a over the time of every event and the text of every decision.</summary>
    public ulong Hash { get; private set; } = 14695981039346656037;

    /// <summary>
    /// The run is over. What its processes tell when they are ended is not kept: clients end their calls on the thread pool, and their connections in the order
    /// of a table of texts, which differs from process to process.
    /// </summary>
    public void End() => _hasEnded = true;

    /// <summary>An event of the run begins.</summary>
    public void Step(long nowUs)
    {
        Steps++;
        Mix((ulong)nowUs);
    }

    /// <summary>Adds a decision or a fault.</summary>
    public void Line(long nowUs, string text)
    {
        foreach (var character in text)
            Mix(character);
        Keep(nowUs, text);
    }

    /// <summary>A frame reaches a node.</summary>
    public void Frame(long nowUs, uint from, uint to, Frame frame)
    {
        Mix(((ulong)from << 40) + ((ulong)to << 32) + (ulong)frame.PayloadCase);
        if (Detailed)
            Keep(nowUs, $"    {from} -> {to} epoch {frame.Epoch} {Shorten(frame)}");
    }

    /// <summary>A caller gets an answer.</summary>
    public void Answer(long nowUs, string what, Etag etag)
    {
        Mix(etag.Epoch);
        Mix(etag.Change);
        if (Detailed)
            Keep(nowUs, $"    answer: {what} at {etag.Epoch}.{etag.Change}");
    }

    public override string ToString() => string.Join('\n', _lines);

    private static string Shorten(Frame frame)
    {
        // Names instead of bytes: records are shown by their number, without their bodies.
        if (frame.PayloadCase is Internal.V1.Frame.PayloadOneofCase.Append)
            return $"Append {frame.Append.Bodies.Count} records behind {Name(frame.Append.Previous)}, committed {Name(frame.Append.Committed)}";
        if (frame.PayloadCase is Internal.V1.Frame.PayloadOneofCase.Tail)
            return $"Tail {frame.Tail.Bodies.Count} records behind {Name(frame.Tail.After)}, found {frame.Tail.Found}";
        if (frame.PayloadCase is Internal.V1.Frame.PayloadOneofCase.SnapshotChunk)
            return $"SnapshotChunk at {frame.SnapshotChunk.Offset} of {frame.SnapshotChunk.BytesTotal}, covers {Name(frame.SnapshotChunk.Covers)}";
        var text = new StringBuilder(frame.PayloadCase.ToString());
        var descriptor = Internal.V1.Frame.Descriptor.FindFieldByNumber((int)frame.PayloadCase);
        return text.Append(' ').Append(descriptor.Accessor.GetValue(frame)).ToString();
    }

    private static string Name(RecordId? record) => Name(record?.Etag);

    private static string Name(V1.Etag? etag) => $"{etag?.Epoch ?? 0}.{etag?.Change ?? 0}";

    private void Keep(long nowUs, string text)
    {
        if (_hasEnded)
            return;
        _lines.Enqueue($"{nowUs / 1000.0,11:F3} ms  {text}");
        if (_lines.Count > LinesMax)
            _lines.Dequeue();
    }

    private void Mix(ulong value)
    {
        if (!_hasEnded)
            Hash = (Hash ^ value) * 1099511628211;
    }
}
