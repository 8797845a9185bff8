namespace KvCluster.Replication.Protocol;

/// <summary>How a compare-and-set ended, or one attempt of it.</summary>
internal enum SetOutcome
{
    /// <summary>The value is the one that was put.</summary>
    Won,

    /// <summary>The value had changed before. This attempt put nothing.</summary>
    Lost,

    /// <summary>The put may have happened, or may still happen. Only a read, or repeating the same compare-and-set, settles it.</summary>
    Unknown,
}

/// <summary>What follows from an attempt.</summary>
internal enum SetStep
{
    /// <summary>It is certain that the value was put.</summary>
    Won,

    /// <summary>It is certain that the value was not put.</summary>
    Lost,

    /// <summary>Make the same attempt again after a pause.</summary>
    Repeat,

    /// <summary>
    /// Read the value. It is won if the value found is the one that was to be put, so a value must tell its writer or it must not matter who wrote it.
    /// </summary>
    Read,
}

/// <summary>
/// The attempts of one compare-and-set at the coordinator, until its outcome is certain. The revision that it expects lets only one attempt succeed, so it may
/// be repeated after an attempt without an answer. If a later attempt is lost, that earlier one may have won, and a read decides. Every compare-and-set whose
/// lost answer matters follows this: the claim of an epoch, a change of the replicas, and the node's own records. Not thread-safe.
/// </summary>
internal struct SetAttempts
{
    /// <summary>Whether an attempt had no answer.</summary>
    public bool IsInDoubt { get; private set; }

    /// <summary>An attempt ended.</summary>
    public SetStep Next(SetOutcome outcome)
    {
        IsInDoubt |= outcome == SetOutcome.Unknown;
        return outcome switch
        {
            SetOutcome.Won => SetStep.Won,
            SetOutcome.Unknown => SetStep.Repeat,
            _ => IsInDoubt ? SetStep.Read : SetStep.Lost,
        };
    }
}
