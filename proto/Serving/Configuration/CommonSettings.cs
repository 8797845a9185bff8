namespace KvCluster.Serving.Configuration;

/// <summary>Settings that node and router have in common.</summary>
internal static class CommonSettings
{
    public static readonly Setting<string> Config = new("config", "FILE", "A file with settings, JSON or YAML: names as of flags, without the hyphens before them.", SettingForms.Path);

    public static readonly Setting<string> Admin = new("admin", "URL",
        "Where to serve health, metrics and administration over HTTP/1.1, as http://127.0.0.1:7480; without it there is no such port.", SettingForms.Url(Uri.UriSchemeHttp));

    public static readonly Setting<string> AdminTokenFile = new("admin-token-file", "FILE", "A file with the token that changes through the admin port need; without it there are none.", SettingForms.Path);

    public static readonly Setting<string> LogFormat = new("log-format", "FORMAT", "How logs are written to standard output: text or json, a line each.", SettingForms.Choice("text", "json")) { Default = "text" };

    public static readonly Setting<int> StopGrace = new("stop-grace-seconds", "SECONDS", "How long a stop may take, on SIGTERM or Ctrl-C; what is not done then is broken off.", SettingForms.Number(2, 3_600)) { Default = "5" };

    public static readonly Setting<bool> UntilStdinEnds = new("until-stdin-ends", "SWITCH", "Stop when standard input ends, as on SIGTERM.", SettingForms.Switch) { IsSwitch = true };

    public static readonly Setting<string> TlsCert = new("tls-cert", "FILE", "PEM file of the certificate to show, with what leads to its authority.", SettingForms.Path);

    public static readonly Setting<string> TlsKey = new("tls-key", "FILE", "PEM file of that certificate's private key.", SettingForms.Path);

    public static readonly Setting<string> TlsCa = new("tls-ca", "FILE", "PEM file of the cluster's authority, which has signed the certificates of its nodes.", SettingForms.Path);

    public static readonly Setting<string> TlsClientAuth = new("tls-client-auth", "HOW", "Whether clients show certificates: none, request or require.", SettingForms.Choice("none", "request", "require")) { Default = "none" };

    public static readonly Setting<bool> AllowPlaintext = new("allow-plaintext", "SWITCH", "Listen beyond loopback without TLS, where the network itself is trusted.", SettingForms.Switch) { IsSwitch = true };

    public static readonly IReadOnlyList<Setting> Tls = [TlsCert, TlsKey, TlsCa, TlsClientAuth, AllowPlaintext];

    /// <summary>Adds what settings of certificates say together that cannot be.</summary>
    public static void CheckTls(Settings settings)
    {
        foreach (var (one, other) in (ReadOnlySpan<(Setting, Setting)>)[(TlsCert, TlsKey), (TlsKey, TlsCert)])
        {
            if (settings.IsGiven(one) && !settings.IsGiven(other))
                settings.AddMistake(one, $"needs {other.Name}, too.");
        }
        if (settings.IsGiven(TlsCa) && !settings.IsGiven(TlsCert))
            settings.AddMistake(TlsCa, $"needs {TlsCert.Name}, too.");
    }
}
