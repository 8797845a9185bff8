using System.CommandLine;
using KvCluster.Node.Configuration;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Programs;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;

namespace KvCluster.Node;

/// <summary>
/// kv-node certs: creates an authority and certificates, as files for trying TLS, or as secrets of Kubernetes for a release of the chart. It reads no settings,
/// because the files are for other processes.
/// </summary>
internal static class CertsCommand
{
    private const string AllNodes = "all";

    private static readonly Argument<string> Folder =
        new("DIR") { Description = "Directory to write them to. If one of the files already exists, nothing is written." };
    private static readonly Option<string> Cluster =
        new("--cluster") { Description = "The cluster's name.", DefaultValueFactory = _ => "local", HelpName = "NAME" };
    private static readonly Option<string> Nodes = new("--nodes") { Description = $"The ids of its nodes, separated by commas, or '{AllNodes}' for one "
        + "certificate that all nodes share, as in a secret of the chart.", DefaultValueFactory = _ => "1,2,3", HelpName = "IDS" };
    private static readonly Option<string?> Hosts = new(
        "--hosts") { Description = "Names and addresses by which nodes and routers are reached, separated by commas, besides loopback.", HelpName = "NAMES" };

    private static readonly Option<string> Authority = new("--authority") { Description = "The secret with the authority, ca.crt and ca.key. "
        + "It is created if it does not exist.", Required = true, HelpName = "SECRET" };
    private static readonly Option<string[]> Certificates = new("--certificate")
    {
        Description = "A secret with a certificate of the authority, and after '=' its names and addresses, separated by commas; "
            + "without them it is for clients. May be repeated.",
        Required = true,
        HelpName = "SECRET=NAMES",
    };
    private static readonly Option<string[]> Labels =
        new("--label") { Description = "A label of secrets that are created. May be repeated.", HelpName = "NAME=VALUE" };

    public static Command Create()
    {
        var init = new Command("init", "Creates an authority, and certificates with keys for nodes, routers and clients.") { Folder, Cluster, Nodes, Hosts };
        init.SetAction(arguments => Init(arguments));
        var secrets = new Command(
            "secrets",
            "In a pod of Kubernetes: creates an authority and certificates as secrets, and renews certificates with less than a third of their time left or "
            + "with other names. What exists and will do is kept.")
        { Authority, Certificates, Labels };
        secrets.SetAction((arguments, stop) => SecretsAsync(arguments, stop));
        return new Command("certs", "Creates certificates, as files or as secrets of Kubernetes.") { init, secrets };
    }

    private static int Init(ParseResult arguments)
    {
        var folder = Path.GetFullPath(arguments.GetRequiredValue(Folder));
        var cluster = Read(Cluster, () => (string)NodeSettings.Cluster.Read(arguments.GetRequiredValue(Cluster))!);
        var ids = arguments.GetRequiredValue(Nodes);
        var nodes = ids == AllNodes ? null : Read(Nodes, () => (IReadOnlyList<NodeId>)NodeSettings.Nodes.Read(ids)!);
        if (!NodeNames.MayNameCluster(cluster))
            throw new SettingsException([$"{Cluster.Name}: {NodeNames.UnfitCluster(cluster)}"]);
        var hosts = Read(Hosts, () => SecretCertificate.HostsOf(arguments.GetValue(Hosts) ?? "").ToList());
        foreach (var file in DevelopmentCertificates.Create(folder, cluster, nodes, hosts, DateTimeOffset.UtcNow))
            Console.WriteLine(Path.Combine(folder, file));
        return ExitCodes.Done;
    }

    private static async Task<int> SecretsAsync(ParseResult arguments, CancellationToken stop)
    {
        var wanted = Read(Certificates, () => arguments.GetRequiredValue(Certificates).Select(SecretCertificate.Parse).ToList());
        var labels = Read(Labels, () => (arguments.GetValue(Labels) ?? []).Select(LabelOf).ToDictionary());
        using var secrets = KubernetesSecrets.OfThisPod();
        try
        {
            await new SecretCertificates(secrets, arguments.GetRequiredValue(Authority), labels, DateTimeOffset.UtcNow, Console.Out)
                .EnsureAsync(wanted, stop).ConfigureAwait(false);
            return ExitCodes.Done;
        }
        catch (OperationCanceledException) when (stop.IsCancellationRequested)
        {
            // A Job whose pod ends with 0 has succeeded.
            Console.Error.WriteLine("kv-node: Stopped before all certificates were looked at. Run this again.");
            return ExitCodes.Unavailable;
        }
    }

    private static KeyValuePair<string, string> LabelOf(string text) => text.Split('=', 2) is [{ Length: > 0 } name, var value]
        ? KeyValuePair.Create(name, value)
        : throw new FormatException($"'{text}' is not a name and a value with '=' between them.");

    private static T Read<T>(Option option, Func<T> read)
    {
        try
        {
            return read();
        }
        catch (FormatException failure)
        {
            throw new SettingsException([$"{option.Name}: {failure.Message}"]);
        }
    }
}
