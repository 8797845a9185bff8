namespace KvCluster.Client.Doctor;

/// <summary>The result of one check.</summary>
/// <param name="Severity">How much it matters.</param>
/// <param name="Subject">What was checked, in a few words.</param>
/// <param name="Text">What was found.</param>
/// <param name="Advice">What to do; empty if nothing is to be done.</param>
internal sealed record Finding(Severity Severity, string Subject, string Text, string Advice = "");

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
