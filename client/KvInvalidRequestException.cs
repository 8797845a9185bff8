namespace KvCluster.Client;

/// <summary>The request itself was refused: an empty or too long key, a too large value, keys of different shards; nothing was applied.</summary>
public sealed class KvInvalidRequestException(string reason, string message) : KvException(reason, message);
