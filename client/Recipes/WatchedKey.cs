using System.Runtime.CompilerServices;

namespace KvCluster.Client;

/// <summary>What a key is, and becomes, for recipes that follow a single one. Each watch is used by one reader.</summary>
internal static class WatchedKey
{
    /// <summary>
    /// Returns the entry of a key as it is, and after each change of it that the watch tells; null while the key does not exist. Fails as
    /// <see cref="KvClient.WatchAsync"/> does.
    /// </summary>
    public static async IAsyncEnumerable<KvEntry?> StatesAsync(
        IKvClient client, KvKey key, bool keysOnly, [EnumeratorCancellation] CancellationToken cancellationToken)
    {
        KvEntry? entry = null;
        var isComplete = false;
        var watch = new KvWatch { Prefix = key, IsOneKey = true, Initial = true, KeysOnly = keysOnly };
        await foreach (var message in client.WatchAsync(watch, cancellationToken).ConfigureAwait(false))
        {
            if (message.Forget is not null)
                entry = null;
            foreach (var happened in message.Events)
            {
                entry = happened.Kind switch
                {
                    KvEventKind.Put => new KvEntry(key, happened.Value, happened.Etag),
                    KvEventKind.Delete or KvEventKind.DeleteRange => null,
                    _ => entry,
                };
            }
            isComplete |= message.IsInitialComplete;
            if (isComplete && (message.IsInitialComplete || message.Events.Count > 0))
                yield return entry;
        }
    }
}
