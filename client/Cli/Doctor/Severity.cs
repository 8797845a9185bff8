namespace KvCluster.Cli.Doctor;

/// <summary>How much a finding matters.</summary>
internal enum Severity
{
    /// <summary>As it should be.</summary>
    Ok,

    /// <summary>It works, and will not or not well if nobody does anything.</summary>
    Warning,

    /// <summary>Something does not work.</summary>
    Problem,
}
