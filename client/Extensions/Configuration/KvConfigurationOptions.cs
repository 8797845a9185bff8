using KvCluster.Client;

namespace KvCluster.Extensions.Configuration;

/// <summary>The options of the configuration in a cluster. They are read once, when it is added.</summary>
public sealed class KvConfigurationOptions
{
    /// <summary>What the keys of the configuration begin with in the cluster. The rest is the name of a setting, with slashes for colons.</summary>
    public string Prefix { get; set; } = "config/";

    /// <summary>
    /// The addresses of the cluster and perhaps settings of the client, as <see cref="KvClientOptions.FromConnectionString"/> reads them. Null means the
    /// connection string "kv" of the configuration before this one, or the cluster at 127.0.0.1:7400 if there is none.
    /// </summary>
    public string? ConnectionString { get; set; }

    /// <summary>A client that is used in place of one of its own, and not disposed.</summary>
    public KvClient? Client { get; set; }

    /// <summary>How long the program waits for the configuration when it starts.</summary>
    public TimeSpan StartTimeout { get; set; } = TimeSpan.FromSeconds(15);

    /// <summary>
    /// The program also starts without the cluster. The settings are then those of the other sources, and change when the cluster is there. Otherwise it does
    /// not start.
    /// </summary>
    public bool Optional { get; set; }

    /// <summary>
    /// Is told what goes wrong while the program runs: the cluster was not heard for a minute, a key or value is not text, or whoever was told of a change
    /// threw. Called one at a time, on a thread of the pool. It must not throw.
    /// </summary>
    public Action<Exception>? OnFailure { get; set; }
}
