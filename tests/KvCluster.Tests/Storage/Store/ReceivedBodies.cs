using KvCluster.Storage;
using KvCluster.Storage.Journal;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Bodies from a peer, as a follower takes them: checked first, then appended.</summary>
internal static class ReceivedBodies
{
    public static bool TryAppend(this ReplicaStore store, ReadOnlyMemory<byte> bytes, out RecordRef record)
    {
        var isIntact = VerifiedBody.TryVerify(bytes, out var body);
        record = body.Record;
        return isIntact && store.Log.TryAppend(body);
    }
}
