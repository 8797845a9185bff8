namespace KvCluster.Storage;

/// <summary>The engine found itself in a state that cannot be: a bug. It ends the engine.</summary>
internal sealed class InvariantException(string message) : Exception(message);
