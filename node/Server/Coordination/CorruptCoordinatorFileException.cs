namespace KvCluster.Node.Coordination;

/// <summary>The embedded coordinator's file is damaged where it had been durable.</summary>
internal sealed class CorruptCoordinatorFileException(string path, long offset, string reason)
    : IOException($"The coordinator's file '{path}' is damaged at byte {offset}: {reason}. It is left as it is.");
