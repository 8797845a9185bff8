using System.Globalization;
using KvCluster.Client;
using Spectre.Console;

namespace KvCluster.Cli.Commands;

/// <summary>What `kv status --shard` adds: leases, the leader's view of its followers, and the replicas' decisions in order of time.</summary>
internal static class ShardDetail
{
    public static Fields ToDocument(ReplicaDetail detail) => new Fields
    {
        { "replica", Hex(detail.Replica) },
        { "incarnation", Hex(detail.Incarnation) },
        { "generation", detail.Generation },
        { "lease_left_ms", detail.LeaseLeft.TotalMilliseconds },
        { "grant_left_ms", detail.GrantLeft.TotalMilliseconds },
        { "followers", detail.Followers.Select(follower => new Fields
        {
            { "replica", Hex(follower.Replica) },
            { "node", follower.Node },
            { "state", follower.State },
            { "acknowledged", follower.Acknowledged.ToString() },
            { "sent", follower.Sent.ToString() },
            { "outstanding_bytes", follower.OutstandingBytes },
            { "grant_left_ms", follower.GrantLeft.TotalMilliseconds },
            { "silent_ms", follower.Silent.TotalMilliseconds },
            { "snapshot_bytes", follower.SnapshotBytes },
            { "snapshot_stored", follower.SnapshotStored },
            { "snapshot_verified", follower.SnapshotVerified },
        }) },
        { "scrubbed_pages", detail.ScrubbedPages },
        { "scrub_passes", detail.ScrubPasses },
        { "compared", detail.Compared is { } compared
            ? new Fields { { "etag", compared.Etag.ToString() }, { "replicas", compared.Replicas }, { "ago_ms", compared.Ago.TotalMilliseconds } }
            : null },
        { "decisions", detail.Decisions.Select(line => new Fields { { "time", Time(line) }, { "text", line.Text }, { "alarm", line.Alarm } }) },
    };

    public static void Print(Output output, ClusterStatus status)
    {
        var replicas = status.Nodes.SelectMany(node => node.Replicas.Select(replica => (node.Node, replica)))
            .Where(found => found.replica.Detail is not null).ToList();
        output.Table(Replicas(replicas));
        foreach (var (node, replica) in replicas.Where(found => found.replica.Detail!.Followers.Count > 0))
        {
            output.Line($"node {node} leads in epoch {replica.Epoch}. Its followers:");
            output.Table(Followers(replica.Detail!.Followers));
            if (replica.Detail.Compared is { } compared)
                output.Line($"the trees of {compared.Replicas} replicas were equal at {compared.Etag}, "
                    + $"{compared.Ago.TotalSeconds.ToString("F0", CultureInfo.InvariantCulture)} s ago");
        }
        foreach (var (node, line) in replicas.SelectMany(found => found.replica.Detail!.Decisions.Select(line => (found.Node, line)))
            .OrderBy(said => said.line.Time))
            output.Line($"{Time(line)} node {node}: {(line.Alarm ? "ALARM: " : "")}{line.Text}");
    }

    private static Table Replicas(IEnumerable<(uint Node, ReplicaStatus Replica)> replicas)
    {
        var table = new Table().Border(TableBorder.Ascii2).AddColumns("node", "replica", "role", "epoch", "generation", "last", "durable", "committed");
        table.AddColumn(new TableColumn("lease ms").RightAligned()).AddColumn(new TableColumn("grant ms").RightAligned());
        foreach (var (node, replica) in replicas)
        {
            var detail = replica.Detail!;
            table.AddRow(
                Number(node), Hex(detail.Replica), replica.Role, Number(replica.Epoch), Number(detail.Generation),
                replica.Last.ToString(),
                replica.Durable.ToString(), replica.Committed.ToString(), Milliseconds(detail.LeaseLeft), Milliseconds(detail.GrantLeft));
        }
        return table;
    }

    private static Table Followers(IEnumerable<FollowerStatus> followers)
    {
        var table = new Table().Border(TableBorder.Ascii2).AddColumns("node", "replica", "state", "acknowledged", "sent");
        foreach (var number in (string[])["outstanding", "grant ms", "silent ms", "snapshot"])
            table.AddColumn(new TableColumn(number).RightAligned());
        foreach (var follower in followers)
        {
            table.AddRow(
                Number(follower.Node), Hex(follower.Replica), follower.State, follower.Acknowledged.ToString(), follower.Sent.ToString(),
                Number(follower.OutstandingBytes), Milliseconds(follower.GrantLeft), Milliseconds(follower.Silent),
                follower.SnapshotBytes == 0 ? ""
                    : follower.SnapshotVerified == 0 ? $"{follower.SnapshotStored} of {follower.SnapshotBytes}"
                    : $"{follower.SnapshotBytes}, {follower.SnapshotVerified} verified");
        }
        return table;
    }

    private static string Time(ReplicaDecision line) => line.Time.UtcDateTime.ToString("yyyy-MM-ddTHH:mm:ss.fffZ", CultureInfo.InvariantCulture);

    private static string Milliseconds(TimeSpan time) => time.TotalMilliseconds.ToString("F0", CultureInfo.InvariantCulture);

    private static string Number(ulong number) => number.ToString(CultureInfo.InvariantCulture);

    private static string Hex(ulong id) => id.ToString("x16", CultureInfo.InvariantCulture);
}
