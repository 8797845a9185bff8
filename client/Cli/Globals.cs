using System.CommandLine;
using System.Globalization;
using KvCluster.Client;

namespace KvCluster.Cli;

/// <summary>The options that all commands have.</summary>
internal static class Globals
{
    private const string EndpointDefault = "http://127.0.0.1:7400";
    private const string PortDefault = ":7400";
    private const double SecondsMin = 0.1;
    private const double SecondsMax = 86_400;

    public static readonly Option<string[]> Endpoint = new("--endpoint")
    {
        Description = "Addresses of routers or of any nodes of one cluster, host:port or with http:// or https://. Several are divided by commas, or the "
            + "option is given more than once (environment variable KVCLUSTER_ENDPOINT).",
        HelpName = "ADDRESS",
        Recursive = true,
        DefaultValueFactory = static _ => (string[])[Variable("KVCLUSTER_ENDPOINT", formerly: "KV_ENDPOINT") ?? EndpointDefault],
    };

    public static readonly Option<string> OutputFormat = OutputOption();

    public static readonly Option<double?> TimeLimit = TimeLimitOption();

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
        "--tls-server-name", "KVCLUSTER_TLS_SERVER_NAME", "Name that the servers' certificates must have, if it is not the host of their address", "NAME",
        formerly: "KV_TLS_SERVER_NAME");

    /// <summary>Limit of calls that read or write whole replicas.</summary>
    public static readonly TimeSpan CallLimitOfWholeReplicas = TimeSpan.FromMinutes(10);

    /// <summary>How long an ordinary call may take.</summary>
    public static readonly TimeSpan CallLimitDefault = new KvClientOptions().Timeout;

    /// <summary>The addresses, each with its scheme; at least one.</summary>
    /// <exception cref="CliException">One is not an address. The message shows nothing of it that may be a secret.</exception>
    public static IReadOnlyList<string> EndpointsOf(ParseResult arguments) => [.. arguments.GetRequiredValue(Endpoint)
        .SelectMany(static given => given.Split(',', StringSplitOptions.TrimEntries)
            .Select(endpoint => (Endpoint: endpoint, MayShow: !given.Contains('@', StringComparison.Ordinal))))
        .Select(one => AddressIn(arguments, one.Endpoint, Endpoint.Name, one.MayShow))];

    /// <summary>Checks an address that an option gives, and returns it with its scheme: without one it is https if there is an option of TLS.</summary>
    /// <param name="mayShow">Whether a message may have it: a part of a longer text may be a part of a password.</param>
    /// <inheritdoc cref="EndpointsOf"/>
    public static string AddressIn(ParseResult arguments, string given, string option, bool mayShow = true)
    {
        var endpoint = WithScheme(given, isTls: new[] { TlsCa, TlsCert, TlsKey, TlsServerName }.Any(one => arguments.GetValue(one) is not null));
        if (!Uri.TryCreate(endpoint, UriKind.Absolute, out var address) || address.Scheme is not ("http" or "https") || address.Host.Length == 0)
        {
            var shown = !mayShow || given.Contains('@', StringComparison.Ordinal) ? "" : $" '{given}'";
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

    /// <summary>An address with a scheme as it is, and another one with the scheme and the port that are meant.</summary>
    internal static string WithScheme(string endpoint, bool isTls)
    {
        if (endpoint.Contains("://", StringComparison.Ordinal))
            return endpoint;
        // The colons of an IPv6 address are in brackets.
        var hasPort = endpoint.LastIndexOf(':') > endpoint.LastIndexOf(']');
        return $"{(isTls ? "https" : "http")}://{endpoint}{(hasPort ? "" : PortDefault)}";
    }

    /// <summary>Creates a client from the options.</summary>
    /// <param name="callLimit">How long one call may take with all its retries, unless --timeout says so; null: the library's default.</param>
    /// <exception cref="CliException">The endpoint is not an address, or a TLS file is not usable.</exception>
    public static KvClient ClientOf(ParseResult arguments, TimeSpan? callLimit = null)
    {
        var options = new KvClientOptions
        {
            Endpoints = EndpointsOf(arguments),
            Gateway = arguments.GetValue(Gateway),
            Timeout = TimeLimitOf(arguments) ?? callLimit ?? CallLimitDefault,
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

    private static TimeSpan? TimeLimitOf(ParseResult arguments) => arguments.GetValue(TimeLimit) switch
    {
        null => null,
        { } seconds when seconds is >= SecondsMin and <= SecondsMax => TimeSpan.FromSeconds(seconds),
        _ => throw new CliException(
            ExitCodes.Usage, string.Create(CultureInfo.InvariantCulture, $"{TimeLimit.Name} must be from {SecondsMin} to {SecondsMax} seconds.")),
    };

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

    // An empty variable counts as not set.
    private static string? Variable(string name, string? formerly = null) =>
        Environment.GetEnvironmentVariable(name) is { Length: > 0 } value ? value
            : formerly is not null && Environment.GetEnvironmentVariable(formerly) is { Length: > 0 } older ? older
            : null;

    /// <param name="formerly">The name that the variable had before all had the same prefix. It still counts if the other one is not set.</param>
    private static Option<string?> FromEnvironment(string name, string variable, string description, string help, string? formerly = null) => new(name)
    {
        Description = $"{description} (environment variable {variable}).",
        HelpName = help,
        Recursive = true,
        DefaultValueFactory = _ => Variable(variable, formerly),
    };

    private static Option<double?> TimeLimitOption()
    {
        var option = SecondsOption(
            "--timeout", "How long a call may take with all its retries. By default 10 seconds, and longer for some calls of operators.");
        option.Recursive = true;
        return option;
    }

    private static Option<string> OutputOption()
    {
        var option = new Option<string>("--output", "-o")
        {
            Description = "Output format: text; json with stable field names; or value, which is text with values only.", HelpName = "text|json|value",
            Recursive = true, DefaultValueFactory = _ => "text"
        };
        option.AcceptOnlyFromAmong("text", "json", "value");
        return option;
    }
}
