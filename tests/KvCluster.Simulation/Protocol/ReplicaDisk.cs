namespace KvCluster.Simulation.Protocol;

/// <summary>State that survives a crash of a replica's process: its journal, its control file and its checkpoint.</summary>
internal sealed class ReplicaDisk(Random random, ReplicaId id)
{
    // Null if no write of the control file is in progress.
    private HardState? _writing;

    public MemoryJournal Journal { get; } = new(random);

    /// <summary>The synced control file. A snapshot brings a new one; a write of it begins and ends.</summary>
    public HardState Control { get; set; } = new() { ReplicaId = id };

    public SimulatedTree Checkpoint { get; set; } = new();

    /// <summary>The number of processes started.</summary>
    public ulong Starts { get; set; }

    // Whatever the end of the journal was when the control file was written, it reached this.
    private Etag Shown => Control.Acknowledged > Control.Committed ? Control.Acknowledged : Control.Committed;

    public void BeginControl(HardState control) => _writing = control;

    public void EndControl(HardState control)
    {
        Control = control;
        _writing = null;
    }

    /// <summary>A write of the control file in progress may have been completed.</summary>
    public void Crash()
    {
        Journal.Crash();
        if (_writing is not null && random.Next(2) == 0)
            Control = _writing;
        _writing = null;
    }

    /// <summary>Loses so much of the end of the journal that the control file reveals it.</summary>
    public bool TryLoseTail() => Journal.TryLoseTail(Shown);

    /// <summary>
    /// As the store does before it appends anything. However far it has recovered when it dies again, the next process finds that records were lost.
    /// </summary>
    public void RememberLoss()
    {
        var last = Journal.Last.Etag;
        if (last >= Shown)
            return;
        var mark = new Etag(Math.Max(Control.PromisedEpoch, last.Epoch), ulong.MaxValue);
        Control = Control with { Acknowledged = mark > Control.Acknowledged ? mark : Control.Acknowledged };
    }
}
