using System.Collections.Frozen;
using KvCluster.Client;
using KvCluster.ServiceDefaults.Configuration;

namespace KvCluster.AdminConsole;

/// <summary>What the console of a program needs to know.</summary>
internal sealed record ConsoleOptions
{
    /// <summary>Where to learn the cluster from: the node itself, or the nodes that a router knows.</summary>
    public required IReadOnlyList<string> Endpoints { get; init; }

    /// <summary>Whose console it is, for its title: "node 1", "router".</summary>
    public required string Program { get; init; }

    /// <summary>For https endpoints; null: the machine's authorities.</summary>
    public KvTlsOptions? Tls { get; init; }

    /// <summary>For changes.</summary>
    public required AdminToken Token { get; init; }

    /// <summary>Whether keys and values are shown with the token only: where the cluster lets only clients it knows read them.</summary>
    public bool KeysNeedToken { get; init; }

    /// <summary>Names under which browsers may ask for it, besides localhost and addresses.</summary>
    public IReadOnlySet<string> Hosts { get; init; } = FrozenSet<string>.Empty;

    /// <summary>From settings that node and router have in common.</summary>
    public static ConsoleOptions Of(Settings settings, AdminToken token, string program, IReadOnlyList<string> endpoints) => new()
    {
        Program = program,
        Endpoints = endpoints,
        Tls = settings.IsGiven(CommonSettings.TlsCert)
            ? new KvTlsOptions { AuthorityFile = settings.Get(CommonSettings.TlsCa), CertificateFile = settings.Get(CommonSettings.TlsCert), KeyFile = settings.Get(CommonSettings.TlsKey) }
            : null,
        Token = token,
        Hosts = settings.Get(CommonSettings.AdminHosts)?.ToFrozenSet(StringComparer.OrdinalIgnoreCase) ?? FrozenSet<string>.Empty,
        KeysNeedToken = settings.Get(CommonSettings.TlsClientAuth) == "require",
    };
}
