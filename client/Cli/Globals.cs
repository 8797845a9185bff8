using System.CommandLine;
using System.Globalization;
using KvCluster.Client;

namespace KvCluster.Cli;

/// <summary>The options that all commands have.</summary>
internal static class Globals
{
    private const string EndpointDefault = "http://127.0.0.1:7400";
    private const double SecondsMin = 0.1;
    private const double SecondsMax = 86_400;

    public static readonly Option<string> Endpoint = new("--endpoint")
    {
        Description = "Address of a router or of any node (environment variable KV_ENDPOINT).",
        HelpName = "URL",
        Recursive = true,
        DefaultValueFactory = _ => Environment.GetEnvironmentVariable("KV_ENDPOINT") is { Length: > 0 } endpoint ? endpoint : EndpointDefault,
    };

    public static readonly Option<string> OutputFormat = OutputOption();

    public static readonly Option<bool> Gateway = new("--gateway")
    {
        Description = "Send every call through the endpoint, for networks in which the nodes cannot be reached directly.",
        Recursive = true,
    };

    public static readonly Option<string?> TlsCa = FromEnvironment(
        "--tls-ca", "KVCLUSTER_TLS_CA", "With https: PEM file of the certificate authorities to trust, by default those of the machine", "FILE");

    public static readonly Option<string?> TlsCert =
        FromEnvironment("--tls-cert", "KVCLUSTER_TLS_CERT", "With https: PEM file of the client certificate to present", "FILE");

    public static readonly Option<string?> TlsKey = FromEnvironment("--tls-key", "KVCLUSTER_TLS_KEY", "PEM file of that certificate's private key", "FILE");

    public static readonly Option<string?> TlsServerName = FromEnvironment(
        "--tls-server-name", "KV_TLS_SERVER_NAME", "Name that the servers' certificates must have, if it is not the host of their address", "NAME");

    /// <summary>Limit of calls that read or write whole replicas.</summary>
    public static readonly TimeSpan CallLimitOfWholeReplicas = TimeSpan.FromMinutes(10);

    /// <summary>How long an ordinary call may take.</summary>
    public static readonly TimeSpan CallLimitDefault = new KvClientOptions().Timeout;

    /// <exception cref="CliException">The endpoint is not an address. The message shows nothing of it that may be a secret.</exception>
    public static string EndpointOf(ParseResult arguments) => AddressIn(arguments.GetRequiredValue(Endpoint), Endpoint.Name);

    /// <summary>Checks an address that an option gives.</summary>
    /// <inheritdoc cref="EndpointOf"/>
    public static string AddressIn(string endpoint, string option)
    {
        if (!Uri.TryCreate(endpoint, UriKind.Absolute, out var address) || address.Scheme is not ("http" or "https") || address.Host.Length == 0)
        {
            var shown = endpoint.Contains('@', StringComparison.Ordinal) ? "" : $" '{endpoint}'";
            throw new CliException(ExitCodes.Usage, $"{option}{shown} is not an address such as {EndpointDefault}.");
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

    /// <summary>Creates a client from the options.</summary>
    /// <param name="callLimit">How long one call may take with all its retries; null: the library's default.</param>
    /// <exception cref="CliException">The endpoint is not an address, or a TLS file is not usable.</exception>
    public static KvClient ClientOf(ParseResult arguments, TimeSpan? callLimit = null)
    {
        var options = new KvClientOptions
        {
            Endpoints = [EndpointOf(arguments)],
            Gateway = arguments.GetValue(Gateway),
            Timeout = callLimit ?? CallLimitDefault,
            Tls = TlsOf(arguments),
        };
        try
        {
            return new KvClient(options);
        }
        catch (KvException e) when (e.Reason == "TLS_FILE_UNUSABLE" && FileOptionOf(arguments, e.Message) is { } option)
        {
            throw new CliException(ExitCodes.Usage, $"{option}: {e.Message}");
        }
    }

    /// <summary>An option of seconds, which may have a fraction behind a point.</summary>
    public static Option<double> SecondsOption(string name, string description, double seconds, string help = "SECONDS") =>
        new(name) { Description = description,
            HelpName = help, DefaultValueFactory = _ => seconds, CustomParser = static result => SecondsIn(result) ?? default };

    /// <inheritdoc cref="SecondsOption(string, string, double, string)"/>
    public static Option<double?> SecondsOption(string name, string description) =>
        new(name) { Description = description, HelpName = "SECONDS", CustomParser = SecondsIn };

    // The parser's own conversion takes a comma for a separator of thousands, so that 1,5 would be 15.
    private static double? SecondsIn(System.CommandLine.Parsing.ArgumentResult result)
    {
        if (result.Tokens is not [{ Value: var text }])
            return null;
        if (TimeToLive.TryParse(text, out var seconds))
            return seconds;
        result.AddError($"{(result.Parent as System.CommandLine.Parsing.OptionResult)?.Option.Name} '{text}' is not a number of seconds, such as 1.5.");
        return null;
    }

    /// <summary>The value of an option in seconds, from a tenth of a second, or another minimum, to a day.</summary>
    /// <exception cref="CliException">The value is out of range.</exception>
    public static TimeSpan SecondsOf(ParseResult arguments, Option<double> option, double secondsMin = SecondsMin) =>
        arguments.GetValue(option) is <= SecondsMax and var seconds && seconds >= secondsMin
            ? TimeSpan.FromSeconds(seconds)
            : throw new CliException(
                ExitCodes.Usage, string.Create(CultureInfo.InvariantCulture, $"{option.Name} must be from {secondsMin} to {SecondsMax} seconds."));

    /// <exception cref="CliException">There is a key without a certificate.</exception>
    public static KvTlsOptions TlsOf(ParseResult arguments)
    {
        var tls = new KvTlsOptions
        {
            AuthorityFile = arguments.GetValue(TlsCa),
            CertificateFile = arguments.GetValue(TlsCert),
            KeyFile = arguments.GetValue(TlsKey),
            ServerName = arguments.GetValue(TlsServerName),
        };
        return tls is { CertificateFile: null, KeyFile: not null }
            ? throw new CliException(ExitCodes.Usage, "--tls-key requires --tls-cert.")
            : tls;
    }

    // The message of such a failure begins with the file.
    private static string? FileOptionOf(ParseResult arguments, string message) => new[] { TlsCa, TlsCert, TlsKey }
        .FirstOrDefault(option => arguments.GetValue(option) is { } file && message.StartsWith(file, StringComparison.Ordinal))?.Name;

    private static Option<string?> FromEnvironment(string name, string variable, string description, string help) => new(name)
    {
        Description = $"{description} (environment variable {variable}).",
        HelpName = help,
        Recursive = true,
        DefaultValueFactory = _ => Environment.GetEnvironmentVariable(variable) is { Length: > 0 } value ? value : null,
    };

    private static Option<string> OutputOption()
    {
        var option = new Option<string>("--output")
        {
            Description = "Output format: text, or json with stable field names.", HelpName = "text|json",
            Recursive = true, DefaultValueFactory = _ => "text"
        };
        option.AcceptOnlyFromAmong("text", "json");
        return option;
    }
}
