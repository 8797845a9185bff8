namespace KvCluster.Storage.Journal;

/// <summary>
/// A record with a correct checksum contains something that this build cannot read: it was written by a newer version, or its writer has a bug. The
/// replica stops (F24). Rebuilding it would not help, since its peers have the same record.
/// </summary>
internal sealed class UnreadableRecordException(string message) : Exception(message);
