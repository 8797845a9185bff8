using System.CommandLine;
using KvCluster.Node.Configuration;
using KvCluster.ServiceDefaults;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;

namespace KvCluster.Node;

/// <summary>
/// kv-node certs init: creates an authority and certificates for trying TLS. It reads no settings, because the files are for other processes.
/// </summary>
internal static class CertsCommand
{
    private const string AllNodes = "all";

    private static readonly Argument<string> Folder = new("DIR") { Description = "Directory to write them to. If one of the files already exists, nothing is written." };
    private static readonly Option<string> Cluster = new("--cluster") { Description = "The cluster's name.", DefaultValueFactory = _ => "local", HelpName = "NAME" };
    private static readonly Option<string> Nodes = new("--nodes") { Description = $"The ids of its nodes, separated by commas, or '{AllNodes}' for one certificate that all nodes share, as in a secret of the chart.", DefaultValueFactory = _ => "1,2,3", HelpName = "IDS" };
    private static readonly Option<string?> Hosts = new("--hosts") { Description = "Names and addresses by which nodes and routers are reached, separated by commas, besides loopback.", HelpName = "NAMES" };

    public static Command Create()
    {
        var init = new Command("init", "Creates an authority, and certificates with keys for nodes, routers and clients.") { Folder, Cluster, Nodes, Hosts };
        init.SetAction(arguments => Init(arguments));
        return new Command("certs", "Creates certificates for development.") { init };
    }

    private static int Init(ParseResult arguments)
    {
        var folder = Path.GetFullPath(arguments.GetRequiredValue(Folder));
        var (cluster, nodes) = (Read(Cluster, NodeSettings.Cluster), arguments.GetRequiredValue(Nodes) == AllNodes ? null : Read(Nodes, NodeSettings.Nodes));
        if (!NodeNames.MayNameCluster(cluster))
            throw new SettingsException([$"{Cluster.Name}: {NodeNames.UnfitCluster(cluster)}"]);
        var hosts = arguments.GetValue(Hosts)?.Split(',', StringSplitOptions.TrimEntries | StringSplitOptions.RemoveEmptyEntries) ?? [];
        if (hosts.FirstOrDefault(host => Uri.CheckHostName(host) == UriHostNameType.Unknown && !host.StartsWith("*.", StringComparison.Ordinal)) is { } wrong)
            throw new SettingsException([$"{Hosts.Name}: '{wrong}' is neither a host name nor an address."]);
        foreach (var file in DevelopmentCertificates.Create(folder, cluster, nodes, hosts, DateTimeOffset.UtcNow))
            Console.WriteLine(Path.Combine(folder, file));
        return ExitCodes.Done;

        T Read<T>(Option<string> option, Setting<T> setting)
        {
            try
            {
                return (T)setting.Read(arguments.GetRequiredValue(option))!;
            }
            catch (FormatException failure)
            {
                throw new SettingsException([$"{option.Name}: {failure.Message}"]);
            }
        }
    }
}
