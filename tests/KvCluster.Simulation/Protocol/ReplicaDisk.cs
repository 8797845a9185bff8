using KvCluster.Replication.Protocol;

namespace KvCluster.Simulation.Protocol;

/// <summary>What a crash of a replica's process leaves: its journal, its control file and its checkpoint.</summary>
internal sealed class ReplicaDisk(Random random, ulong id)
{
    // Null: no write of the control file is under way.
    private HardState? _writing;

    public MemoryJournal Journal { get; } = new(random);

    /// <summary>The control file as it is synced. A snapshot brings one; a write of it begins and ends.</summary>
    public HardState Control { get; set; } = new() { ReplicaId = id };

    public SimulatedTree Checkpoint { get; set; } = new();

    /// <summary>Processes that have started.</summary>
    public ulong Starts { get; set; }

    // However far the journal went when the control file was written, it reached this.
    private Etag Shown => Control.Acknowledged > Control.Committed ? Control.Acknowledged : Control.Committed;

    public void BeginControl(HardState control) => _writing = control;

    public void EndControl(HardState control)
    {
        Control = control;
        _writing = null;
    }

    /// <summary>A write of the control file that was under way may have come to its end.</summary>
    public void Crash()
    {
        Journal.Crash();
        if (_writing is not null && random.Next(2) == 0)
            Control = _writing;
        _writing = null;
    }

    /// <summary>The end of the journal goes: so much that the control file shows it.</summary>
    public bool TryLoseTail() => Journal.TryLoseTail(Shown);

    /// <summary>As the store does before it appends anything: however far it is recovered until it dies again, the next process finds that it lost something.</summary>
    public void RememberLoss()
    {
        var last = Journal.Last.Etag;
        if (last >= Shown)
            return;
        var mark = new Etag(Math.Max(Control.PromisedEpoch, last.Epoch), ulong.MaxValue);
        Control = Control with { Acknowledged = mark > Control.Acknowledged ? mark : Control.Acknowledged };
    }
}
