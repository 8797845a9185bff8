namespace KvCluster.Storage.Context;

/// <summary>The engine has stopped. The inner exception is the first failure, or null after disposal.</summary>
internal sealed class StoreStoppedException(Exception? first)
    : Exception(first is null ? "The store was closed." : $"The store has stopped: {first.Message}", first);
