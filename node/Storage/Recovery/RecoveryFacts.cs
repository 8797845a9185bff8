namespace KvCluster.Storage.Recovery;

/// <summary>What an opening store found; the input of <c>RecoveryTable</c>. What could not be looked at is at its default.</summary>
internal sealed record RecoveryFacts
{
    /// <summary>Why the directory is marked as not to be opened; null: it is not marked.</summary>
    public string? Quarantined { get; init; }

    /// <summary>The control file is there.</summary>
    public bool HasControlFile { get; init; }

    /// <summary>Sound slots in it, 0 to 2.</summary>
    public int ControlSlots { get; init; }

    /// <summary>A state directory is there.</summary>
    public bool HasState { get; init; }

    /// <summary>Why the data file cannot be used; null if it can.</summary>
    public Exception? DataFault { get; init; }

    /// <summary>The journal's line; null when it was not read.</summary>
    public JournalLine? Line { get; init; }

    /// <summary>The etag that the newest sound meta page covers.</summary>
    public UInt128 Meta { get; init; }

    /// <summary>The checksum of that record, as the meta page has it.</summary>
    public uint MetaChecksum { get; init; }

    /// <summary>The committed etag of the control file.</summary>
    public UInt128 Committed { get; init; }

    /// <summary>The acknowledged etag of the control file.</summary>
    public UInt128 Acknowledged { get; init; }

    /// <summary>The record that the checkpoint ends with is on the line, or right before it, with the checksum that the meta page names.</summary>
    public bool MetaIsOnLine =>
        Line is not null
        && ((Line.Base.Etag == Meta && Line.Base.Checksum == MetaChecksum)
            || Line.Entries.Exists(entry => entry.Record.Etag == Meta && entry.Record.Checksum == MetaChecksum));
}
