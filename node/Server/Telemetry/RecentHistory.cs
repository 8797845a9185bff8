// The last fifteen minutes of a node, for the console: whoever opens it after a failure sees what came before it, without a Prometheus. A ring of 180 samples
// of five seconds, each with the same 19 numbers of 8 bytes: 27 KB for a node, from its start on. Filled by MetricsRefresh, read by calls on any thread.
using KvCluster.V1;

namespace KvCluster.Node.Telemetry;

/// <summary>Keeps the newest samples. Thread-safe.</summary>
internal sealed class RecentHistory
{
    /// <summary>Fifteen minutes.</summary>
    public const int SamplesMax = 180;

    /// <summary>Time between two samples.</summary>
    public static readonly TimeSpan Interval = TimeSpan.FromSeconds(5);

    private readonly Lock _gate = new();
    private readonly HistorySample[] _samples = new HistorySample[SamplesMax];
    private long _added;

    /// <summary>Adds a sample. The oldest one is removed if necessary.</summary>
    public void Add(in HistorySample sample)
    {
        lock (_gate)
            _samples[_added++ % SamplesMax] = sample;
    }

    /// <summary>The samples for the status, oldest first.</summary>
    public NodeHistory Tell()
    {
        var message = new NodeHistory();
        foreach (var sample in Samples())
        {
            message.UnixUs.Add(sample.UnixUs);
            message.MeasuredUs.Add((ulong)sample.Calls.MeasuredUs);
            message.Reads.Add((ulong)sample.Calls.Reads.Count);
            message.Writes.Add((ulong)sample.Calls.Writes.Count);
            message.ReadP50Us.Add((ulong)sample.Calls.Reads.P50Us);
            message.ReadP99Us.Add((ulong)sample.Calls.Reads.P99Us);
            message.WriteP50Us.Add((ulong)sample.Calls.Writes.P50Us);
            message.WriteP99Us.Add((ulong)sample.Calls.Writes.P99Us);
            message.LagChanges.Add((ulong)sample.LagChanges);
            message.ChangedPagesBytes.Add(sample.Memory.ChangedPagesBytes);
            message.ReaderPagesBytes.Add(sample.Memory.ReaderPagesBytes);
            message.FreePagesBytes.Add(sample.Memory.FreePagesBytes);
            message.JournalBytes.Add(sample.Memory.JournalBytes);
            message.JournalIndexBytes.Add(sample.Memory.JournalIndexBytes);
            message.RequestsBytes.Add(sample.Memory.RequestsBytes);
            message.DiskUsedBytes.Add((ulong)sample.DiskUsedBytes);
            message.DiskFreeBytes.Add((ulong)sample.DiskFreeBytes);
            message.Checkpoints.Add((ulong)sample.Checkpoints);
            message.CheckpointBytes.Add((ulong)sample.CheckpointBytes);
        }
        return message;
    }

    private HistorySample[] Samples()
    {
        lock (_gate)
            return _added <= SamplesMax ? _samples[..(int)_added] : [.. _samples[(int)(_added % SamplesMax)..], .. _samples[..(int)(_added % SamplesMax)]];
    }
}

/// <summary>The state of a node at one moment, and what it did since the sample before. The fields are those of <see cref="NodeHistory"/>.</summary>
internal readonly record struct HistorySample
{
    public required long UnixUs { get; init; }

    public required MeasuredCalls Calls { get; init; }

    public required long LagChanges { get; init; }

    public required MemoryParts Memory { get; init; }

    public required long DiskUsedBytes { get; init; }

    public required long DiskFreeBytes { get; init; }

    public required long Checkpoints { get; init; }

    public required long CheckpointBytes { get; init; }
}

/// <summary>Memory of the stores by use, in bytes.</summary>
internal readonly record struct MemoryParts(
    ulong ChangedPagesBytes, ulong ReaderPagesBytes, ulong FreePagesBytes, ulong JournalBytes, ulong JournalIndexBytes, ulong RequestsBytes)
{
    public static MemoryParts Of(NodeMemory memory) =>
        new(memory.ChangedPagesBytes, memory.ReaderPagesBytes, memory.FreePagesBytes, memory.JournalBytes, memory.JournalIndexBytes, memory.RequestsBytes);
}

/// <summary>Calls that were measured in a time.</summary>
/// <param name="MeasuredUs">For how long calls were measured.</param>
/// <param name="Reads">Reads including scans.</param>
/// <param name="Writes">Changes.</param>
internal readonly record struct MeasuredCalls(long MeasuredUs, DurationsTold Reads, DurationsTold Writes);
