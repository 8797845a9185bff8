namespace KvCluster.Storage.Journal;

/// <summary>
/// What the lanes of a journal may do together. One row per phase and event, in <see cref="JournalPhases.After"/>. <see cref="JournalSchedule"/> owns the
/// phase, under its lock.
/// </summary>
internal enum JournalPhase
{
    /// <summary>Each lane may write records; one may also fill the next segment.</summary>
    Open,

    /// <summary>One lane executes a step with nothing else in flight; the others wait.</summary>
    Exclusive,

    /// <summary>A write found no space. Nothing begins until the other writes in flight have ended; then all of them are taken back.</summary>
    Draining,

    /// <summary>A step failed, so the content of the disk is unknown. Nothing begins and nothing is reported durable any more.</summary>
    Failed,
}

/// <summary>What moves a journal from one <see cref="JournalPhase"/> to the next.</summary>
internal enum JournalEvent
{
    /// <summary>A lane begins an exclusive step.</summary>
    ExclusiveBegins,

    /// <summary>An exclusive step ended.</summary>
    ExclusiveEnds,

    /// <summary>A write of records found no space.</summary>
    FoundNoRoom,

    /// <summary>The last write in flight behind one that found no space has ended, and the records were taken back.</summary>
    TakenBack,

    /// <summary>A step failed.</summary>
    Failure,
}

/// <summary>The transitions between phases. Pure.</summary>
internal static class JournalPhases
{
    /// <summary>The phase that follows on an event.</summary>
    /// <exception cref="InvariantException">The event cannot happen in this phase.</exception>
    public static JournalPhase After(this JournalPhase phase, JournalEvent happened) => (phase, happened) switch
    {
        (JournalPhase.Open, JournalEvent.ExclusiveBegins) => JournalPhase.Exclusive,
        (JournalPhase.Exclusive, JournalEvent.ExclusiveEnds) => JournalPhase.Open,
        // Both writes in flight may find no space.
        (JournalPhase.Open or JournalPhase.Draining, JournalEvent.FoundNoRoom) => JournalPhase.Draining,
        (JournalPhase.Draining, JournalEvent.TakenBack) => JournalPhase.Open,
        // This phase is final. Steps that were in flight when it began still end.
        (_, JournalEvent.Failure) => JournalPhase.Failed,
        (JournalPhase.Failed, JournalEvent.ExclusiveEnds or JournalEvent.FoundNoRoom) => JournalPhase.Failed,
        _ => throw new InvariantException($"A journal that is {phase} met the event {happened}."),
    };
}
