using KvCluster.Client;
using Microsoft.Extensions.Configuration;

namespace KvCluster.Extensions.DependencyInjection;

/// <summary>
/// Reads the options of a client from a section of configuration, without reflection, so that natively compiled programs can. A binder would ignore a name that
/// it does not know, and a client whose "Endpoint" was ignored would look for its cluster at the default address. Any thread.
/// </summary>
internal static class SectionSettings
{
    /// <summary>
    /// Sets what the section has. What is wrong with it is a mistake of the options. So is that it has nothing, unless a connection string or code sets the
    /// endpoints: its name may be spelled wrong.
    /// </summary>
    public static void Read(KvClientOptions options, IConfiguration section)
    {
        if (!Read(options, section, above: ""))
            options.EmptySection = (section as IConfigurationSection)?.Path ?? "";
    }

    /// <summary>Returns whether there is a setting.</summary>
    private static bool Read(KvClientOptions options, IConfiguration section, string above)
    {
        var isRead = false;
        foreach (var child in section.GetChildren())
        {
            var name = above + child.Key;
            // A variable of the environment sets the list as one text, and has precedence over the items of a file.
            if ((child.Value ?? ListOf(child, name)) is { } text)
            {
                ClientSettings.Read(options, child.Path, name, text);
                isRead = true;
            }
            else
            {
                isRead |= Read(options, child, $"{name}:");
            }
        }
        return isRead;
    }

    // The items of the one setting that is a list, as in a connection string; null if it is another one or has none.
    private static string? ListOf(IConfigurationSection setting, string name)
    {
        if (!name.Equals(nameof(KvClientOptions.Endpoints), StringComparison.OrdinalIgnoreCase))
            return null;
        var items = setting.GetChildren().Select(static item => item.Value).ToList();
        return items.Count == 0 ? null : string.Join(',', items);
    }
}
