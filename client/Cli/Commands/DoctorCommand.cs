using System.CommandLine;
using KvCluster.Cli.Doctor;
using KvCluster.Client;
using KvCluster.Client.Doctor;

namespace KvCluster.Cli.Commands;

/// <summary>`kv doctor`: examines a deployment and recommends actions.</summary>
internal static class DoctorCommand
{
    private static readonly Option<bool> All = new("--all") { Description = "Also print the checks that passed." };

    private static readonly Option<string[]> Routers = new("--router") { Description = "Also check the certificate of the router at this address. "
        + "Can be given more than once. That of --endpoint is always checked.", HelpName = "ADDRESS" };

    public static Command Create() => CliCommand.CreateReader(
        "doctor",
        "Check nodes, shards, clocks, disks, coordinator, certificates and limits, and "
        + "recommend actions. The exit code is 7 if there is a problem.",
        [All, Routers],
        async (arguments, output, stop) =>
        {
            await using var client = Globals.ClientOf(arguments);
            var connection = Connection.Of(arguments);
            string[] routers = [.. connection.Endpoints, .. arguments.GetValue(Routers)!.Select(router => connection.AddressIn(router, Routers.Name))];
            var (status, nodes, asked, now) = await Examined.ReadAsync(client.Admin, stop);
            // Nodes are left out, because a node reports its own certificate when it is examined.
            var servers = routers.Select(static router => new Uri(router))
                .Where(router => router.Scheme == Uri.UriSchemeHttps && nodes.All(node => !IsSame(node.Address, router))).Distinct();
            var presented = await Task.WhenAll(servers.Select(server => Handshakes.ReadAsync(server, connection.Tls, stop)));
            var findings = new Diagnosis(status, nodes, asked, now) { Presented = [.. presented.SelectMany(static one => one)] }.Findings();
            if (output.IsJson)
                output.Document(ToDocument(status.Cluster, findings));
            else
                Print(output, status.Cluster, findings, arguments.GetValue(All));
            return findings.Any(finding => finding.Severity == Severity.Problem) ? ExitCodes.ProblemsFound : ExitCodes.Done;
        });

    private static bool IsSame(string address, Uri server) => Uri.TryCreate(address, UriKind.Absolute, out var other) && other == server;

    private static Fields ToDocument(string cluster, IReadOnlyList<Finding> findings) => new Fields
    {
        { "cluster", cluster },
        { "findings", findings.Select(finding => new Fields
        {
            { "severity", NameOf(finding.Severity) },
            { "subject", finding.Subject },
            { "text", finding.Text },
            { "advice", finding.Advice.Length == 0 ? null : finding.Advice },
        }) },
    };

    private static void Print(Output output, string cluster, IReadOnlyList<Finding> findings, bool all)
    {
        foreach (var finding in findings.Where(finding => all || finding.Severity != Severity.Ok).OrderByDescending(finding => finding.Severity))
        {
            output.Line($"{NameOf(finding.Severity),-7}  {finding.Subject}: {finding.Text}");
            if (finding.Advice.Length > 0)
                output.Line($"         {finding.Advice}");
        }
        output.Line($"cluster {cluster}: {findings.Count(finding => finding.Severity == Severity.Problem)} problems, "
            + $"{findings.Count(finding => finding.Severity == Severity.Warning)} warnings, {findings.Count} checks");
    }

    private static string NameOf(Severity severity) => severity.ToString().ToLowerInvariant();
}
