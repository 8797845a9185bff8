using KvCluster.Extensions.Configuration;

namespace Microsoft.Extensions.Configuration;

/// <summary>Adds configuration in a cluster.</summary>
public static class KvClusterConfigurationBuilderExtensions
{
    /// <summary>
    /// Adds the settings that are keys of a cluster below a prefix. They override those of sources that were added before. A change of a key changes the
    /// setting while the program runs, and whoever follows changes is told, such as an options monitor. While the cluster is away, settings stay as they are.
    /// </summary>
    /// <param name="builder">The configuration.</param>
    /// <param name="configure">Sets the options; null: the defaults.</param>
    public static IConfigurationBuilder AddKvCluster(this IConfigurationBuilder builder, Action<KvConfigurationOptions>? configure = null)
    {
        ArgumentNullException.ThrowIfNull(builder);
        var options = new KvConfigurationOptions();
        configure?.Invoke(options);
        if (string.IsNullOrEmpty(options.Prefix))
            throw new ArgumentException("Without a prefix all keys of the cluster would be settings. Choose one.", nameof(configure));
        return builder.Add(new KvConfigurationSource(options));
    }
}
