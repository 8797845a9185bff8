namespace KvCluster.Storage.Journal;

/// <summary>
/// A record whose checksum is right says something that this build cannot read: it is of a newer version, or its maker has a bug. The replica
/// stops (F24); rebuilding it would not help, since its peers have the same record.
/// </summary>
internal sealed class UnreadableRecordException(string message) : Exception(message);
