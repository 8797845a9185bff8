using System.Globalization;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.ServiceDefaults.Security;
using KvCluster.Tls;

namespace KvCluster.ServiceDefaults.Configuration;

/// <summary>Settings that node and router have in common.</summary>
internal static class CommonSettings
{
    public static readonly Setting<string> Config =
        new("config", "FILE", "Settings file, JSON or YAML. Its keys are the flags' names without the leading hyphens.", SettingForms.Path);

    public static readonly Setting<string> Admin = new("admin", "URL",
        "Address of the admin port (health, metrics, console) over HTTP/1.1, for example http://127.0.0.1:7480. Without it there is no admin port.",
        SettingForms.Url(Uri.UriSchemeHttp));

    public static readonly Setting<string> AdminTokenFile = new(
        "admin-token-file", "FILE", "File with the token that is required for changes through the admin port. Without it, such changes are refused.",
        SettingForms.Path);

    public static readonly Setting<IReadOnlyList<string>> AdminHosts = new("admin-hosts", "NAMES",
        "Host names under which browsers may open the console, separated by commas, for example kv.example.com. localhost and IP addresses are always allowed.",
        SettingForms.ListOf(SettingForms.HostName));

    public static readonly Setting<bool> ServeAdmin = new("serve-admin", "SWITCH",
        "Serve operators' calls (kv admin, kv doctor) at the address for clients too. Without it a router serves none, and a node serves them at listen-peers "
        + "only.", SettingForms.Switch) { IsSwitch = true };

    public static readonly Setting<int?> CallMemoryMebibytes = new("call-memory-mib", "MIB",
        "Memory for the requests and replies of all client calls together. A call that does not fit is refused with BUSY. By default 256; "
        + "in a container with a limit a quarter of the limit, from 128 to 256.",
        SettingForms.OptionalNumber(CallMemory.MebibytesMin, 65_536));

    public static readonly Setting<int> ConnectionsMax = new("connections-max", "N",
        "Limit of open client connections. One address (IPv6: one /64 network) may use three quarters of them. At the limit, the oldest connection without a "
        + "call is closed, or the new one if there is none.",
        SettingForms.Number(16, 1_000_000)) { Default = Text(ListenerLimits.ConnectionsDefault) };

    public static readonly Setting<string> LogFormat = new(
        "log-format", "FORMAT", "Format of the log on standard output, one line per entry: text or json.",
        SettingForms.Choice("text", "json")) { Default = "text" };

    public static readonly Setting<string> LogLevel = new("log-level", "LEVEL",
        "Least level of the messages in the log, also of those exported by OTLP: trace, debug, information, warning or error. "
        + "Of the web server there are warnings and errors only.",
        SettingForms.Choice("trace", "debug", "information", "warning", "error")) { Default = "information" };

    public static readonly Setting<int> StopGrace = new(
        "stop-grace-seconds", "SECONDS", "Time that stopping may take after SIGTERM or Ctrl-C. Work that is then unfinished is aborted.",
        SettingForms.Number(2, 3_600)) { Default = "5" };

    public static readonly Setting<bool> UntilStdinEnds =
        new("until-stdin-ends", "SWITCH", "Stop when standard input ends, as on SIGTERM.", SettingForms.Switch) { IsSwitch = true };

    public static readonly Setting<string> TlsCert =
        new("tls-cert", "FILE", "PEM file of the certificate to present, followed by the intermediate certificates up to its authority.", SettingForms.Path);

    public static readonly Setting<string> TlsKey = new("tls-key", "FILE", "PEM file of that certificate's private key.", SettingForms.Path);

    public static readonly Setting<string> TlsCa =
        new("tls-ca", "FILE", "PEM file of the cluster's certificate authority, which signed the certificates of its nodes.", SettingForms.Path);

    public static readonly Setting<string> TlsClientAuth = new(
        "tls-client-auth", "HOW", "Whether every client must present a certificate signed by the authority: none or require.",
        SettingForms.Choice("none", "require")) { Default = "none" };

    public static readonly Setting<bool> AllowPlaintext = new(
        "allow-plaintext", "SWITCH", "Listen beyond loopback without TLS. Use it only where the network itself is trusted.",
        SettingForms.Switch) { IsSwitch = true };

    public static readonly IReadOnlyList<Setting> Tls = [TlsCert, TlsKey, TlsCa, TlsClientAuth, AllowPlaintext];

    private static string Text(int number) => number.ToString(CultureInfo.InvariantCulture);

    /// <summary>Adds mistakes for invalid combinations of settings of certificates and addresses.</summary>
    /// <param name="settings">The settings to check.</param>
    /// <param name="listen">The setting of the address for callers.</param>
    /// <param name="callsHttps">Whether the program connects to others with TLS even if it does not listen with it.</param>
    public static void CheckTls(Settings settings, Setting<string> listen, bool callsHttps)
    {
        Setting[] files = [TlsCa, TlsCert, TlsKey];
        if (files.FirstOrDefault(settings.IsGiven) is { } given && files.FirstOrDefault(file => !settings.IsGiven(file)) is { } missing)
            settings.AddMistake(given, $"also needs {missing.Name}.");
        if (settings.Get(TlsClientAuth) == "require" && !settings.IsGiven(TlsCert))
            settings.AddMistake(TlsClientAuth, $"also needs {TlsCert.Name}.");
        if (settings.Get(listen) is not { } text)
            return;
        var address = new Uri(text);
        if (address.Scheme == Uri.UriSchemeHttps && !settings.IsGiven(TlsCert))
            settings.AddMistake(listen, $"'{text}' needs {TlsCa.Name}, {TlsCert.Name} and {TlsKey.Name}.");
        if (address.Scheme == Uri.UriSchemeHttp && !callsHttps && settings.IsGiven(TlsCert))
            settings.AddMistake(TlsCert, $"is not used, because {listen.Name} is '{text}', without TLS.");
        CheckPlainText(settings, listen, "use https://, or ");
    }

    /// <summary>Adds a mistake if a program listens in plain text beyond loopback without being told explicitly that it may.</summary>
    /// <param name="settings">The settings to check.</param>
    /// <param name="listen">The setting of the address.</param>
    /// <param name="instead">An alternative to name in the message, before "set".</param>
    public static void CheckPlainText(Settings settings, Setting<string> listen, string instead = "")
    {
        if (settings.Get(listen) is { } text && PlainText.IsExposed(new Uri(text)) && !settings.Get(AllowPlaintext))
            settings.AddMistake(
                listen, $"'{text}' is reachable from other machines without TLS; {instead}set {AllowPlaintext.Name} if the network itself is trusted.");
    }

    /// <summary>The TLS files and whether clients must present a certificate; null if no files are set.</summary>
    public static ServerTlsOptions? TlsOf(Settings settings) => settings.Get(TlsCert) is not { } certificate ? null : new ServerTlsOptions
    {
        Files = new TlsFiles { AuthorityFile = settings.Get(TlsCa), CertificateFile = certificate, KeyFile = settings.Get(TlsKey) },
        RequiresClientCertificate = settings.Get(TlsClientAuth) == "require",
    };
}
