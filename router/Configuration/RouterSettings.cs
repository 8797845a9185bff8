using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Hosting;

namespace KvCluster.Router.Configuration;

/// <summary>The settings of kv-router, the combinations that are invalid, and the options made from them.</summary>
internal static class RouterSettings
{
    public static readonly Setting<string> Listen = new(
        "listen", "URL", "Address for clients, for example http://127.0.0.1:7400.",
        SettingForms.Url(Uri.UriSchemeHttp, Uri.UriSchemeHttps)) { IsRequired = true };

    public static readonly Setting<IReadOnlyList<string>> Nodes = new("nodes", "URLS",
        "Nodes to get the shard map from, separated by commas. One that answers is enough.",
        SettingForms.ListOf(SettingForms.Url(Uri.UriSchemeHttp, Uri.UriSchemeHttps))) { IsRequired = true };

    /// <summary>What a router needs besides its calls: the runtime, the map of the shards, connections. In MiB.</summary>
    private const int ProgramMebibytes = 64;

    public static readonly IReadOnlyList<Setting> RunTable =
    [
        CommonSettings.Config, Listen, Nodes, CommonSettings.ServeAdmin,
        CommonSettings.Admin, CommonSettings.AdminTokenFile, CommonSettings.AdminHosts, .. CommonSettings.Tls, CommonSettings.CallMemoryMebibytes,
        CommonSettings.ConnectionsMax, CommonSettings.LogFormat, CommonSettings.LogLevel, CommonSettings.StopGrace, CommonSettings.UntilStdinEnds,
    ];

    public static void Check(Settings settings) =>
        CommonSettings.CheckTls(settings, Listen, callsHttps: settings.Get(Nodes)?.Any(node => node.StartsWith("https:", StringComparison.Ordinal)) == true);

    /// <summary>Why a router with these settings must not start under a limit of memory; null if it may.</summary>
    public static string? MemoryRefusal(Settings settings, long? limitBytes) => ProcessMemory.Refusal(
        limitBytes,
        "router",
        ("the program", ProgramMebibytes),
        (CommonSettings.CallMemoryMebibytes.Name, settings.Get(CommonSettings.CallMemoryMebibytes) ?? ProcessMemory.CallMemoryDefault(limitBytes)));

    public static RouterOptions OptionsOf(Settings settings) => new()
    {
        Listen = settings.Get(Listen)!,
        Seeds = settings.Get(Nodes)!,
        ServeAdmin = settings.Get(CommonSettings.ServeAdmin),
        Tls = CommonSettings.TlsOf(settings),
        CallMemoryMebibytes = ProcessMemory.CallMemoryOf(settings),
        ConnectionsMax = settings.Get(CommonSettings.ConnectionsMax),
        MakesFirstCalls = true,
    };
}
