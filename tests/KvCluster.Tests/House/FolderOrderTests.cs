using System.Text.RegularExpressions;

namespace KvCluster.Tests.House;

/// <summary>
/// Inside a project, directories have an order, too. Each uses only those listed before it. None uses the project's own directory, which composes them all,
/// except those that are built on it. A new edge against the order is a decision about the architecture, made here and in ARCHITECTURE.md.
/// </summary>
public sealed partial class FolderOrderTests
{
    /// <summary>For each project directory its root namespace and its directories, from the lowest to the highest.</summary>
    private static readonly Dictionary<string, (string Namespace, string[] Order)> Projects = new()
    {
        ["node/Storage"] = ("KvCluster.Storage",
        [
            "Files", "Threads", "Encoding", "Shared",
            "Pages", "Trees", "DataFile", "Control", "Context", "Journal", "Sessions", "Transactions", "Recovery", "Snapshots", "Maintenance", "Inspection",
        ]),
        // Everything that users of a library name is in its root namespace, so that one using line is enough.
        ["node/Storage/Embedded"] = ("KvCluster.Storage", []),
        ["node/Replication"] = (
            "KvCluster.Replication", ["Log", "Protocol", "State", "Progress", "Digests", "Reconfiguration", "Following", "Leading", "Elections"]),
        ["node/Server"] = ("KvCluster.Node",
        [
            "Runtime", "Telemetry", "Coordination",
            "Coordination/Etcd", "Coordination/Embedded", "Configuration", "Map",
            "Shards/Disk", "Shards/Context", "Shards/Reads", "Shards/Snapshots", "Shards/Loop", "Shards",
            "Watching", "Transport", "Hosting", "CoordinatorRecovery", "Placement",
            "Api/Errors", "Api/Calls", "Api/Reads", "Api/Changes", "Api/Watches", "Api/Operators", "Api",
        ]),
        ["proto/ServiceDefaults"] = ("KvCluster.ServiceDefaults",
        [
            "Programs", "Logs", "Security", "Telemetry", "Calls", "Memory", "Exchanges", "Connections", "Configuration", "Hosting", "Admin",
        ]),
        ["client"] = ("KvCluster.Client", ["Model", "Doctor", "Runtime", "Telemetry", "Routing", "Transport", "Sessions", "Loading", "Recipes"]),
    };

    /// <summary>Directories with projects of their own inside another project's directory.</summary>
    private static readonly string[] NestedProjects =
    [
        "node/Storage/Embedded/", "client/Cli/", "client/Console/", "client/Extensions/", "client/Testing/", "client/TestCluster/", "client/examples/",
    ];

    /// <summary>Their types are named by users of a library, and so are in its root namespace.</summary>
    private static readonly string[] WithoutNamespace = ["client/Model", "client/Recipes"];

    /// <summary>Directories that are built on what their project's own directory has. Nothing else of the project uses them.</summary>
    private static readonly string[] OnTheRoot = ["client/Recipes"];

    public static TheoryData<string> Names => new(Projects.Keys);

    [Theory]
    [MemberData(nameof(Names))]
    public void Directories_AreThoseOfTheOrder(string project) =>
        Assert.Equal(Projects[project].Order.Order(StringComparer.Ordinal), Sources(project)
            .Select(source => source.Directory).Where(directory => directory.Length > 0).Distinct().Order(StringComparer.Ordinal));

    [Theory]
    [MemberData(nameof(Names))]
    public void Namespaces_FollowDirectories(string project) => Assert.Empty(Sources(project)
        .Where(source => DeclaredNamespace().Match(source.Text) is { Success: true } declared
            && declared.Groups[1].Value != NamespaceOf(project, source.Directory))
        .Select(source => source.Path));

    [Theory]
    [MemberData(nameof(Names))]
    public void Directories_UseOnlyThoseBeforeThem(string project)
    {
        var (root, order) = Projects[project];
        var position = order.Index().ToDictionary(entry => entry.Item, entry => entry.Index);
        var types = Sources(project).GroupBy(source => source.Directory).ToDictionary(
            directory => directory.Key,
            directory => directory.SelectMany(source => DeclaredType().Matches(source.Text)).Select(type => type.Groups[1].Value).ToHashSet());
        var ofRoot = types.GetValueOrDefault("", []);
        var onTheRoot = types.Where(directory => OnTheRoot.Contains($"{project}/{directory.Key}")).SelectMany(static directory => directory.Value).ToHashSet();
        var wrong = new List<string>();
        foreach (var source in Sources(project))
        {
            if (OnTheRoot.Contains($"{project}/{source.Directory}"))
                continue;
            wrong.AddRange(TypesUsed(source.Text, onTheRoot).Select(type => $"{source.Path} -> {type}, which is built on the root"));
            if (source.Directory.Length == 0)
                continue;
            foreach (var used in UsedNamespace().Matches(source.Text).Select(match => match.Groups[1].Value).Distinct())
            {
                if (used == root || used.StartsWith(root + ".", StringComparison.Ordinal))
                {
                    var directory = used == root ? "" : used[(root.Length + 1)..].Replace('.', '/');
                    if (!position.TryGetValue(directory, out var at) || at > position[source.Directory])
                        wrong.Add($"{source.Path} -> {(directory.Length == 0 ? "the root" : directory)}");
                }
            }
            wrong.AddRange(TypesUsed(source.Text, ofRoot).Select(type => $"{source.Path} -> {type} of the root"));
            // The types of the directory above are seen without a using line.
            if (source.Directory.LastIndexOf('/') is > 0 and var end && source.Directory[..end] is var above
                && position.TryGetValue(above, out var place) && place > position[source.Directory])
                wrong.AddRange(TypesUsed(source.Text, types[above]).Select(type => $"{source.Path} -> {type} of {above}"));
        }
        Assert.Empty(wrong);
    }

    private static IEnumerable<string> TypesUsed(string text, HashSet<string> types) =>
        Identifier().Matches(Code(text)).Select(match => match.Value).Where(types.Contains).Distinct();

    private static string NamespaceOf(string project, string directory) =>
        directory.Length == 0 || WithoutNamespace.Contains($"{project}/{directory}") ? Projects[project].Namespace
            : $"{Projects[project].Namespace}.{directory.Replace('/', '.')}";

    private static IEnumerable<(string Path, string Directory, string Text)> Sources(string project) => House.TextFiles()
        .Where(path => path.StartsWith(project + "/", StringComparison.Ordinal) && path.EndsWith(".cs", StringComparison.Ordinal))
        .Where(path => !NestedProjects.Any(nested => nested != project + "/" && path.StartsWith(nested, StringComparison.Ordinal)))
        .Select(path => (path, House.FolderOf(path[(project.Length + 1)..]).TrimEnd('/'), House.Read(path)));

    /// <summary>The text without comments and strings.</summary>
    private static string Code(string text) => NotCode().Replace(text, "");

    [GeneratedRegex(@"^namespace ([\w.]+);", RegexOptions.Multiline)]
    private static partial Regex DeclaredNamespace();

    [GeneratedRegex(@"^using (?:static )?(?:\w+ = )?(KvCluster[\w.]*);", RegexOptions.Multiline)]
    private static partial Regex UsedNamespace();

    [GeneratedRegex(
        @"^(?:(?:public|internal|file|sealed|static|abstract|readonly|ref|unsafe|partial)\s+)*(?:class|struct|interface|enum|record(?:\s+struct)?)\s+(\w+)",
        RegexOptions.Multiline)]
    private static partial Regex DeclaredType();

    // A type qualified with another namespace is a different type: Kv.KvClient belongs to gRPC.
    [GeneratedRegex(@"(?<![\w.])[A-Z]\w*")]
    private static partial Regex Identifier();

    [GeneratedRegex(@"//[^\n]*|""(?:\\.|[^""\\\n])*""")]
    private static partial Regex NotCode();
}
