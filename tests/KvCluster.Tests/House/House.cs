using System.Xml.Linq;

namespace KvCluster.Tests.House;

/// <summary>The repository as files, for tests of its rules. It is searched upwards from the test's own directory.</summary>
internal static class House
{
    private static readonly string[] NotOurs = [".git", "artifacts", "node_modules", ".kvcluster", "TestResults", "bin", "obj"];
    private static readonly string[] TextTypes =
        [".cs", ".csproj",
            ".props", ".targets", ".json", ".md", ".proto", ".sh", ".js", ".mjs", ".txt", ".yaml", ".yml", ".sln", ".editorconfig", ".gitignore", ""];

    public static readonly string Root = FindRoot();

    /// <summary>All text files, as paths relative to the root with forward slashes, in order.</summary>
    public static IEnumerable<string> TextFiles() => FilesUnder(Root)
        .Where(path => TextTypes.Contains(Path.GetExtension(path), StringComparer.Ordinal))
        .Select(path => Path.GetRelativePath(Root, path).Replace('\\', '/'))
        .Order(StringComparer.Ordinal);

    public static IEnumerable<string> Projects() => TextFiles().Where(path => path.EndsWith(".csproj", StringComparison.Ordinal));

    public static string Read(string path) => File.ReadAllText(Path.Combine(Root, path));

    public static XDocument ReadXml(string path) => XDocument.Parse(Read(path));

    /// <summary>The directory of the path, with a slash at its end: "node/Storage/".</summary>
    public static string FolderOf(string path) => path[..(path.LastIndexOf('/') + 1)];

    private static IEnumerable<string> FilesUnder(string folder) => Directory.EnumerateFiles(folder)
        .Concat(Directory.EnumerateDirectories(folder).Where(inner => !NotOurs.Contains(Path.GetFileName(inner))).SelectMany(FilesUnder));

    private static string FindRoot()
    {
        for (var folder = new DirectoryInfo(AppContext.BaseDirectory); folder is not null; folder = folder.Parent)
            if (File.Exists(Path.Combine(folder.FullName, "KvCluster.sln")))
                return folder.FullName;
        throw new DirectoryNotFoundException($"No KvCluster.sln above {AppContext.BaseDirectory}: these tests read the sources that they were built from.");
    }
}
