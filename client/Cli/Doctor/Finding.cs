namespace KvCluster.Cli.Doctor;

/// <summary>Something that was looked at.</summary>
/// <param name="Severity">How much it matters.</param>
/// <param name="Subject">What was looked at, in a word or two.</param>
/// <param name="Text">What was found.</param>
/// <param name="Advice">What to do; empty where nothing is to be done.</param>
internal sealed record Finding(Severity Severity, string Subject, string Text, string Advice = "");
