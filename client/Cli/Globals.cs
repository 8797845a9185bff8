using System.CommandLine;
using System.Globalization;
using KvCluster.Client;

namespace KvCluster.Cli;

/// <summary>The options that all commands have.</summary>
internal static class Globals
{
    /// <summary>Where a cluster is looked for if nothing says where it is.</summary>
    public const string EndpointDefault = "http://127.0.0.1:7400";

    private const double SecondsMin = 0.1;
    private const double SecondsMax = 86_400;

    public static readonly Option<string[]> Endpoint = new("--endpoint")
    {
        Description = "Addresses of routers or of any nodes of one cluster, host:port or with http:// or https://. Several are divided by commas, or the "
            + "option is given more than once (environment variable KVCLUSTER_ENDPOINT).",
        HelpName = "ADDRESS",
        Recursive = true,
        DefaultValueFactory = static _ => (string[])[EndpointOfEnvironment ?? EndpointDefault],
    };

    public static readonly Option<string?> Context = ContextOption();

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

    /// <summary>All of them.</summary>
    public static readonly IReadOnlyList<Option> All = [Endpoint, Context, OutputFormat, TimeLimit, Gateway, TlsCa, TlsCert, TlsKey, TlsServerName];

    /// <summary>Limit of calls that read or write whole replicas.</summary>
    public static readonly TimeSpan CallLimitOfWholeReplicas = TimeSpan.FromMinutes(10);

    /// <summary>How long an ordinary call may take.</summary>
    public static readonly TimeSpan CallLimitDefault = new KvClientOptions().Timeout;

    /// <summary>The addresses that the environment names; null: it names none.</summary>
    public static string? EndpointOfEnvironment => Variable("KVCLUSTER_ENDPOINT", formerly: "KV_ENDPOINT");

    /// <summary>The context that the environment names; null: it names none.</summary>
    public static string? ContextOfEnvironment => Variable("KVCLUSTER_CONTEXT");

    /// <summary>Whether an option is on the command line.</summary>
    public static bool IsGiven(ParseResult arguments, Option option) => arguments.GetResult(option) is { Implicit: false };

    /// <summary>Creates a client from the options.</summary>
    /// <param name="callLimit">How long one call may take with all its retries, unless --timeout says so; null: the library's default.</param>
    /// <param name="isForOneRead">The command makes one call, which reads a key.</param>
    /// <exception cref="CliException">The endpoint is not an address, or a TLS file is not usable.</exception>
    public static KvClient ClientOf(ParseResult arguments, TimeSpan? callLimit = null, bool isForOneRead = false)
    {
        var connection = Connection.Of(arguments);
        var options = new KvClientOptions
        {
            Endpoints = connection.Endpoints,
            Gateway = connection.Gateway,
            Timeout = TimeLimitOf(arguments) ?? callLimit ?? CallLimitDefault,
            Tls = connection.Tls,
            IsForOneRead = isForOneRead,
        };
        try
        {
            return new KvClient(options);
        }
        catch (KvException e) when (e.Reason == KvReasons.TlsFileUnusable && FileOptionOf(arguments, e.Message) is { } option)
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

    private static Option<string?> ContextOption()
    {
        var option = new Option<string?>("--context")
        {
            Description = "The cluster that kv context add has given this name (environment variable KVCLUSTER_CONTEXT).",
            HelpName = "NAME",
            Recursive = true,
        };
        option.CompletionSources.Add(static _ => ContextFile.NamesIfReadable());
        return option;
    }

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
