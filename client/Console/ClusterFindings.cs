using KvCluster.Client;
using KvCluster.Client.Doctor;

namespace KvCluster.AdminConsole;

/// <summary>What <c>kv doctor</c> finds, as far as this process can ask for it.</summary>
internal static class ClusterFindings
{
    public static async Task<object> ReadAsync(KvAdmin admin)
    {
        var (status, nodes, asked, now) = await Examined.ReadAsync(admin, CancellationToken.None).ConfigureAwait(false);
        return Of(status, nodes, asked, now);
    }

    /// <param name="status">The status of the nodes.</param>
    /// <param name="nodes">Their examinations.</param>
    /// <param name="asked">The clock before the nodes were examined.</param>
    /// <param name="now">The clock when all had answered.</param>
    public static object Of(ClusterStatus status, IReadOnlyList<NodeExamination> nodes, DateTimeOffset asked, DateTimeOffset now)
    {
        // Such a node works, but its address for operators' calls cannot be reached from here, as from a router behind a network policy.
        var answering = status.Nodes.Where(static node => node.Error.Length == 0).Select(static node => node.Node).ToHashSet();
        var closed = nodes.Where(node => node.Error.Length > 0 && answering.Contains(node.Node)).ToList();
        var findings = new Diagnosis(status, [.. nodes.Except(closed)], asked, now).Findings();
        return new
        {
            UnixMs = now.ToUnixTimeMilliseconds(),
            Checks = findings.Count,
            Findings = findings.Where(static finding => finding.Severity != Severity.Ok).OrderByDescending(static finding => finding.Severity)
                .Select(static finding => new { IsProblem = finding.Severity == Severity.Problem, finding.Subject, finding.Text, finding.Advice }),
            NotExamined = closed.Select(static node => new { node.Node, node.Error }),
        };
    }
}
