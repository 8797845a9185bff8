namespace KvCluster.Storage.Recovery;

/// <summary>One row of <c>RecoveryTable</c>.</summary>
/// <param name="Name">How tests and the log call it.</param>
/// <param name="Opens">Whether the store opens; otherwise it refuses and changes nothing.</param>
/// <param name="Applies">Whether the facts are this row's.</param>
/// <param name="Describe">What is said: for a refusal, which bytes are bad.</param>
internal sealed record RecoveryRow(string Name, bool Opens, Func<RecoveryFacts, bool> Applies, Func<RecoveryFacts, string> Describe);
