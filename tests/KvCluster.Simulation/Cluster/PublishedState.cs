using System.Text;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Maintenance;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Trees;

namespace KvCluster.Simulation.Cluster;

/// <summary>The published state of a node's replica, for the checks at the end of a run.</summary>
internal readonly struct PublishedState(ClusterNode node)
{
    public Etag Etag
    {
        get
        {
            using var snapshot = node.Replica!.Reads.OpenSnapshot();
            return snapshot.Etag;
        }
    }

    /// <summary>Null if damage was found, which ends this node.</summary>
    public string? Digest()
    {
        try
        {
            using var snapshot = node.Replica!.Reads.OpenSnapshot();
            return Convert.ToHexString(TreeDigest.Of(snapshot));
        }
        catch (CorruptStoreException found) when (node.Disk.IsDamaged)
        {
            node.Lose(found.Message);
            return null;
        }
    }

    /// <summary>Compares it with the committed state, key by key.</summary>
    public void Check(CommittedLog log)
    {
        using var snapshot = node.Replica!.Reads.OpenSnapshot();
        using var cursor = snapshot.Cursor(TreeId.Kv);
        var etag = snapshot.Etag;
        foreach (var key in log.Keys)
        {
            var committed = log.At(key, etag);
            if (!committed.Exists)
                continue;
            var found = cursor.MoveNext() ? ClusterData.Found(cursor.Value) : default;
            Violation.Unless(
                found.Exists
                    && Encoding.ASCII.GetString(cursor.Key) == key && found.Etag == committed.Etag && found.Value.AsSpan().SequenceEqual(committed.Value),
                Rule.CommittedStays, $"the tree of node {node.Id} does not hold what was committed under {key} at {committed.Etag}");
        }

        Violation.Unless(!cursor.MoveNext(), Rule.CommittedStays, $"the tree of node {node.Id} holds a key that was not committed");
        using var sets = snapshot.Cursor(TreeId.Sets);
        foreach (var (key, (members, changed)) in log.Sets)
        {
            Violation.Unless(
                sets.MoveNext() && Encoding.ASCII.GetString(sets.Key) == key && sets.Set.Etag == changed && MembersOf(sets.Set).SequenceEqual(members),
                Rule.CommittedStays, $"node {node.Id} does not hold the {members.Count} members that were committed in {key} at {changed}");
        }

        Violation.Unless(!sets.MoveNext(), Rule.CommittedStays, $"node {node.Id} holds a set that was not committed");
    }

    private static List<string> MembersOf(StoredSet set)
    {
        var members = new List<string>();
        using var cursor = set.Members();
        while (cursor.MoveNext())
            members.Add(Encoding.ASCII.GetString(cursor.Member));
        return members;
    }
}
