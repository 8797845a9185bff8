namespace KvCluster.Storage.Journal;

/// <summary>What a <see cref="JournalLane"/> does next.</summary>
internal enum JournalStep
{
    /// <summary>Nothing.</summary>
    None,

    /// <summary>Write <see cref="JournalLane.Write"/>, beside whatever the other lanes do.</summary>
    Write,

    /// <summary>A step towards the next segment, beside writes into the current one.</summary>
    Fill,

    /// <summary>The job that is next, with nothing else in flight.</summary>
    Alone,
}
