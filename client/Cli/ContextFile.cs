using System.Text.Json;

namespace KvCluster.Cli;

/// <summary>
/// The contexts of a user: names for clusters, and how each is reached. They are in one file, which is read with every command that needs it and replaced as a
/// whole. It has no secrets, only the paths of files.
/// </summary>
internal sealed class ContextFile
{
    private ContextFile(string? current, SortedDictionary<string, ClusterContext> contexts) => (Current, Contexts) = (current, contexts);

    /// <summary>Where it is.</summary>
    public static string Location => Path.Combine(UserFolders.Configuration, "contexts.json");

    /// <summary>The context of commands that name none; null: there is none.</summary>
    public string? Current { get; private set; }

    /// <summary>All of them by their names.</summary>
    public SortedDictionary<string, ClusterContext> Contexts { get; }

    /// <summary>Reads the file; without one there are no contexts.</summary>
    /// <exception cref="CliException">It cannot be read, or something else is in it.</exception>
    public static ContextFile Read()
    {
        try
        {
            if (!File.Exists(Location))
                return new ContextFile(null, new SortedDictionary<string, ClusterContext>(StringComparer.Ordinal));
            // Not by the serializer, which takes more time than all the rest of a short command.
            using var document = JsonDocument.Parse(File.ReadAllBytes(Location));
            return new ContextFile(TextOf(document.RootElement, "current"), ContextsIn(document.RootElement.GetProperty("contexts")));
        }
        catch (Exception e) when (e is IOException or UnauthorizedAccessException)
        {
            throw new CliException(ExitCodes.Usage, $"{Location} cannot be read: {e.Message}");
        }
        catch (Exception e) when (e is JsonException or InvalidOperationException or KeyNotFoundException)
        {
            throw new CliException(ExitCodes.Usage, $"{Location} is not what kv context add has written: {e.Message}");
        }
    }

    /// <summary>The names of all contexts, for completion; none if the file is not usable.</summary>
    public static IEnumerable<string> NamesIfReadable()
    {
        try
        {
            return Read().Contexts.Keys;
        }
        catch (CliException)
        {
            // Nobody has asked for the file. The command that needs it tells what is wrong.
            return [];
        }
    }

    /// <summary>A context.</summary>
    /// <exception cref="CliException">There is no such context.</exception>
    public ClusterContext Find(string name) => Contexts.TryGetValue(name, out var context)
        ? context
        : throw new CliException(
            ExitCodes.Usage, $"There is no context '{name}'.{Spelling.Question(name, Contexts.Keys)} kv context list shows them.");

    /// <summary>Makes a context the one of commands that name none; null: they have none.</summary>
    /// <exception cref="CliException">There is no such context, or the file cannot be written.</exception>
    public void Use(string? name)
    {
        if (name is not null)
            Find(name);
        Current = name;
        Write();
    }

    /// <summary>Adds a context, or replaces the one with that name. The first one is used at once.</summary>
    /// <exception cref="CliException">The file cannot be written.</exception>
    public void Add(string name, ClusterContext context, bool use)
    {
        if (use || Contexts.Count == 0)
            Current = name;
        Contexts[name] = context;
        Write();
    }

    /// <summary>Removes a context.</summary>
    /// <exception cref="CliException">There is no such context, or the file cannot be written.</exception>
    public void Remove(string name)
    {
        Find(name);
        Contexts.Remove(name);
        if (Current == name)
            Current = null;
        Write();
    }

    private static SortedDictionary<string, ClusterContext> ContextsIn(JsonElement all)
    {
        var contexts = new SortedDictionary<string, ClusterContext>(StringComparer.Ordinal);
        foreach (var one in all.EnumerateObject())
        {
            string[] endpoints = [.. one.Value.GetProperty("endpoints").EnumerateArray().Select(static endpoint => endpoint.GetString() ?? "")];
            if (endpoints.Length == 0)
                throw new JsonException($"the context {one.Name} has no endpoints");
            contexts[one.Name] = new ClusterContext(endpoints)
            {
                Gateway = one.Value.TryGetProperty("gateway", out var gateway) && gateway.GetBoolean(),
                TlsCa = TextOf(one.Value, "tls_ca"),
                TlsCert = TextOf(one.Value, "tls_cert"),
                TlsKey = TextOf(one.Value, "tls_key"),
                TlsServerName = TextOf(one.Value, "tls_server_name"),
            };
        }
        return contexts;
    }

    private static string? TextOf(JsonElement element, string name) => element.TryGetProperty(name, out var text) ? text.GetString() : null;

    // Whoever reads meanwhile sees the old file or the new one.
    private void Write()
    {
        var written = $"{Location}.{Environment.ProcessId}";
        var contexts = new Fields();
        foreach (var (name, context) in Contexts)
            contexts.Add(name, context.ToFields());
        var file = new Fields { { "current", Current }, { "contexts", contexts } };
        try
        {
            Directory.CreateDirectory(UserFolders.Configuration);
            File.WriteAllBytes(written, file.ToUtf8(isIndented: true));
            File.Move(written, Location, overwrite: true);
        }
        catch (Exception e) when (e is IOException or UnauthorizedAccessException)
        {
            throw new CliException(ExitCodes.Usage, $"{Location} cannot be written: {e.Message}");
        }
    }
}

/// <summary>How a cluster is reached.</summary>
/// <param name="Endpoints">Addresses with their schemes.</param>
internal sealed record ClusterContext(IReadOnlyList<string> Endpoints)
{
    public bool Gateway { get; init; }

    /// <summary>Paths of files, from the root.</summary>
    public string? TlsCa { get; init; }

    /// <inheritdoc cref="TlsCa"/>
    public string? TlsCert { get; init; }

    /// <inheritdoc cref="TlsCa"/>
    public string? TlsKey { get; init; }

    public string? TlsServerName { get; init; }

    public Fields ToFields() => new()
    {
        { "endpoints", Endpoints },
        { "gateway", Gateway },
        { "tls_ca", TlsCa },
        { "tls_cert", TlsCert },
        { "tls_key", TlsKey },
        { "tls_server_name", TlsServerName },
    };
}
