namespace KvCluster.Cli.Doctor;

/// <summary>How much a finding matters.</summary>
internal enum Severity
{
    /// <summary>As it should be.</summary>
    Ok,

    /// <summary>It works now, but not for long or not well unless somebody acts.</summary>
    Warning,

    /// <summary>Something does not work.</summary>
    Problem,
}
