using System.CommandLine;
using KvCluster.Client;

namespace KvCluster.Cli;

/// <summary>How a command reaches its cluster: by its options, else by a context, else by the environment.</summary>
/// <param name="Endpoints">Addresses with their schemes; at least one.</param>
/// <param name="Gateway">Every call goes through them.</param>
/// <param name="Tls">For https.</param>
internal sealed record Connection(IReadOnlyList<string> Endpoints, bool Gateway, KvTlsOptions Tls)
{
    private const string PortDefault = ":7400";

    /// <summary>
    /// What applies to a command. A context is taken as a whole: what it lacks is not taken from the environment, which may mean another cluster.
    /// </summary>
    /// <exception cref="CliException">An address is none, there is no such context, or options exclude each other. The message shows no secret.</exception>
    public static Connection Of(ParseResult arguments)
    {
        var context = ContextOf(arguments);
        var tls = new KvTlsOptions
        {
            AuthorityFile = ValueOf(Globals.TlsCa, context?.TlsCa),
            CertificateFile = ValueOf(Globals.TlsCert, context?.TlsCert),
            KeyFile = ValueOf(Globals.TlsKey, context?.TlsKey),
            ServerName = ValueOf(Globals.TlsServerName, context?.TlsServerName),
        };
        if (tls is { CertificateFile: null, KeyFile: not null })
            throw new CliException(ExitCodes.Usage, "--tls-key requires --tls-cert.");
        var endpoints = context is null
            ? AddressesIn(arguments.GetRequiredValue(Globals.Endpoint), Globals.Endpoint.Name, HasTls(tls))
            : AddressesIn([.. context.Endpoints], "the context's endpoint", HasTls(tls));
        return new Connection(endpoints, arguments.GetValue(Globals.Gateway) || context is { Gateway: true }, tls);

        string? ValueOf(Option<string?> option, string? ofContext) =>
            context is null || Globals.IsGiven(arguments, option) ? arguments.GetValue(option) : ofContext;
    }

    /// <summary>Checks an address that an option gives, and returns it with its scheme.</summary>
    /// <exception cref="CliException">It is none. The message shows nothing of it that may be a secret.</exception>
    public string AddressIn(string given, string option) => AddressIn(given, option, HasTls(Tls), mayShow: true);

    /// <summary>An address with a scheme as it is, and another one with the scheme and the port that are meant.</summary>
    internal static string WithScheme(string endpoint, bool isTls)
    {
        if (endpoint.Contains("://", StringComparison.Ordinal))
            return endpoint;
        // The colons of an IPv6 address are in brackets.
        var hasPort = endpoint.LastIndexOf(':') > endpoint.LastIndexOf(']');
        return $"{(isTls ? "https" : "http")}://{endpoint}{(hasPort ? "" : PortDefault)}";
    }

    private static bool HasTls(KvTlsOptions tls) => (tls.AuthorityFile ?? tls.CertificateFile ?? tls.KeyFile ?? tls.ServerName) is not null;

    private static string[] AddressesIn(string[] given, string option, bool isTls) => [.. given
        .SelectMany(static text => text.Split(',', StringSplitOptions.TrimEntries)
            .Select(part => (Part: part, MayShow: !text.Contains('@', StringComparison.Ordinal))))
        .Select(one => AddressIn(one.Part, option, isTls, one.MayShow))];

    // A part of a longer text may be a part of a password.
    private static string AddressIn(string given, string option, bool isTls, bool mayShow)
    {
        var endpoint = WithScheme(given, isTls);
        if (!Uri.TryCreate(endpoint, UriKind.Absolute, out var address) || address.Scheme is not ("http" or "https") || address.Host.Length == 0)
        {
            var shown = !mayShow || given.Contains('@', StringComparison.Ordinal) ? "" : $" '{given}'";
            throw new CliException(ExitCodes.Usage, $"{option}{shown} is not an address such as {Globals.EndpointDefault}.");
        }

        if (address.UserInfo.Length > 0)
        {
            throw new CliException(
                ExitCodes.Usage,
                $"{option} has a user or a password, for which the cluster has no use. Give {address.Scheme}://{address.Authority}, and a certificate by "
                + "--tls-cert.");
        }

        return address.PathAndQuery == "/" && address.Fragment.Length == 0
            ? endpoint
            : throw new CliException(ExitCodes.Usage, $"{option} must have nothing behind host and port: {address.Scheme}://{address.Authority}.");
    }

    private static ClusterContext? ContextOf(ParseResult arguments)
    {
        var named = arguments.GetValue(Globals.Context);
        var hasEndpoint = Globals.IsGiven(arguments, Globals.Endpoint);
        if (named is not null && hasEndpoint)
            throw new CliException(ExitCodes.Usage, "--context and --endpoint exclude each other.");
        if (named is null && (hasEndpoint || Globals.EndpointOfEnvironment is not null))
            return null;
        var file = ContextFile.Read();
        return (named ?? Globals.ContextOfEnvironment ?? file.Current) is { } name ? file.Find(name) : null;
    }
}
