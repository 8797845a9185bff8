namespace KvCluster.Storage.Recovery;

/// <summary>One row of <c>RecoveryTable</c>.</summary>
/// <param name="Name">How tests and the log call it.</param>
/// <param name="Decision">What becomes of the directory. What is refused is not changed.</param>
/// <param name="Applies">Whether the facts are this row's.</param>
/// <param name="Describe">What is said: which bytes are bad.</param>
internal sealed record RecoveryRow(string Name, RecoveryDecision Decision, Func<RecoveryFacts, bool> Applies, Func<RecoveryFacts, string> Describe);
