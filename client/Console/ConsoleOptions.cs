using System.Collections.Frozen;
using KvCluster.Client;
using KvCluster.ServiceDefaults.Configuration;

namespace KvCluster.AdminConsole;

/// <summary>The options of a program's console.</summary>
internal sealed record ConsoleOptions
{
    /// <summary>Where to load the cluster from: the node itself, or the nodes that a router knows.</summary>
    public required IReadOnlyList<string> Endpoints { get; init; }

    /// <summary>The program, for the title: "node 1", "router".</summary>
    public required string Program { get; init; }

    /// <summary>For https endpoints; null means to trust the machine's authorities.</summary>
    public KvTlsOptions? Tls { get; init; }

    /// <summary>The token required for changes.</summary>
    public required AdminToken Token { get; init; }

    /// <summary>Whether keys and values are shown only with the token, because the cluster lets only known clients read them.</summary>
    public bool KeysNeedToken { get; init; }

    /// <summary>Host names by which browsers may address it, besides localhost and IP addresses.</summary>
    public IReadOnlySet<string> Hosts { get; init; } = FrozenSet<string>.Empty;

    /// <summary>Creates the options from the settings that node and router have in common.</summary>
    public static ConsoleOptions Of(Settings settings, AdminToken token, string program, IReadOnlyList<string> endpoints) => new()
    {
        Program = program,
        Endpoints = endpoints,
        Tls = settings.IsGiven(CommonSettings.TlsCert)
            ? new KvTlsOptions
            {
                AuthorityFile = settings.Get(CommonSettings.TlsCa), CertificateFile = settings.Get(CommonSettings.TlsCert),
                KeyFile = settings.Get(CommonSettings.TlsKey)
            }
            : null,
        Token = token,
        Hosts = settings.Get(CommonSettings.AdminHosts)?.ToFrozenSet(StringComparer.OrdinalIgnoreCase) ?? FrozenSet<string>.Empty,
        KeysNeedToken = settings.Get(CommonSettings.TlsClientAuth) == "require",
    };
}
