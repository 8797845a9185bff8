using System.Text.Json;
using System.Text.RegularExpressions;

namespace KvCluster.Tests.House;

/// <summary>
/// Documents name only what exists: files and directories, types and members, settings and scenarios, and link targets. Fenced blocks are not
/// checked. The changelog also names what no longer exists, so only its links are checked.
/// </summary>
public sealed partial class DocumentTests
{
    private static readonly string[] SourceTypes = [".cs", ".proto", ".csproj", ".props"];

    // Extensions of paths in backticks. Other file names, such as those of certificates, belong to users.
    private static readonly string[] PathTypes = [".cs", ".csproj", ".json", ".md", ".mjs", ".png", ".props", ".proto", ".sh", ".sln", ".txt", ".yaml", ".yml"];

    private static readonly string[] Files = [.. House.TextFiles()];
    private static readonly Lazy<Names> Known = new(static () => new Names(Files));
    private static readonly Lazy<HashSet<string>> FilesOfTheSite = new(ReadFilesOfTheSite);

    public static TheoryData<string> Documents => new(Files.Where(IsDocument));

    public static TheoryData<string> DocumentsOfToday => new(Files.Where(static path => IsDocument(path) && path != "CHANGELOG.md"));

    [Theory]
    [MemberData(nameof(DocumentsOfToday))]
    public void Paths_InBackticks_Exist(string document) =>
        AssertNone("Paths that do not exist", Spans(document).Where(span => IsPath(document, span) && !PathExists(document, span)));

    [Theory]
    [MemberData(nameof(DocumentsOfToday))]
    public void Names_InBackticks_ExistInTheSources(string document) => AssertNone(
        "Names that the sources do not have",
        Spans(document).Where(span => !IsPath(document, span) && (CodeName().IsMatch(span) || HyphenatedName().IsMatch(span)) && !Known.Value.Contain(span)));

    [Theory]
    [MemberData(nameof(Documents))]
    public void Links_InsideTheRepository_Resolve(string document) => AssertNone(
        "Links to nothing",
        Link().Matches(Prose(document)).Select(static link => link.Groups[1].Value).Where(
            target => !target.Contains("://", StringComparison.Ordinal) && !LinkResolves(document, target)));

    /// <summary>The site that docfx makes has all documents, and of other files those that it is told. It has no directories.</summary>
    [Theory]
    [MemberData(nameof(Documents))]
    public void Links_ToOtherFiles_AreInTheSite(string document) => AssertNone(
        "Links to what docfx.json does not have as a resource",
        Link().Matches(Prose(document)).Select(static link => link.Groups[1].Value).Where(static target => !target.Contains("://", StringComparison.Ordinal))
            .Select(target => FileOf(document, target)).Where(static file => !IsDocument(file) && !FilesOfTheSite.Value.Contains(file)));

    // Assert.Empty would truncate the list.
    private static void AssertNone(string what, IEnumerable<string> found)
    {
        var all = string.Join(", ", found);
        Assert.True(all.Length == 0, $"{what}: {all}");
    }

    private static bool IsDocument(string path) => path.EndsWith(".md", StringComparison.Ordinal);

    private static string Prose(string document) => Fence().Replace(House.Read(document), "");

    private static IEnumerable<string> Spans(string document) => Span().Matches(Prose(document)).Select(span => span.Groups[1].Value).Distinct();

    /// <summary>
    /// Whether the text names a file of a kind that the repository has, or begins with one of its directories, relative to the root or to the
    /// document.
    /// </summary>
    private static bool IsPath(string document, string span) => PathText().IsMatch(span)
        && (PathTypes.Contains(Path.GetExtension(span), StringComparer.Ordinal)
            || (span.Contains('/') && (HasFilesUnder(span[..span.IndexOf('/')]) || HasFilesUnder(House.FolderOf(document) + span[..span.IndexOf('/')]))));

    private static bool HasFilesUnder(string directory) => Files.Any(file => file.StartsWith(directory + "/", StringComparison.Ordinal));

    /// <summary>A path is relative to the root or to the document. A file name alone may be that of any file. A star stands for any part of a name.</summary>
    private static bool PathExists(string document, string path)
    {
        var pattern = Regex.Escape(path.TrimEnd('/')).Replace("\\*", "[^/]*", StringComparison.Ordinal);
        var rest = path.EndsWith('/') ? "/" : "(/|$)";
        return Files.Any(file => Regex.IsMatch(file, path.Contains('/')
            ? $"^({Regex.Escape(House.FolderOf(document))})?{pattern}{rest}"
            : $"(^|/){pattern}$")) || File.Exists(Path.Combine(House.Root, House.FolderOf(document), path));
    }

    private static bool LinkResolves(string document, string target)
    {
        var heading = target.Split('#') is [_, var after] ? after : null;
        var file = FileOf(document, target);
        return heading is null
            ? Path.Exists(Path.Combine(House.Root, file))
            : IsDocument(file)
                && File.Exists(Path.Combine(House.Root, file)) && Heading().Matches(Prose(file)).Any(match => Anchor(match.Groups[1].Value) == heading);
    }

    private static string FileOf(string document, string target) => target.Split('#')[0] is { Length: > 0 } path
        ? Path.GetRelativePath(House.Root, Path.GetFullPath(path, Path.Combine(House.Root, House.FolderOf(document)))).Replace('\\', '/')
        : document;

    private static HashSet<string> ReadFilesOfTheSite()
    {
        using var site = JsonDocument.Parse(House.Read("docfx.json"));
        return [.. site.RootElement.GetProperty("build").GetProperty("resource")[0].GetProperty("files").EnumerateArray()
            .Select(static file => file.GetString()!)];
    }

    /// <summary>An anchor as GitHub makes it.</summary>
    private static string Anchor(string heading) =>
        string.Concat(heading.Trim().ToLowerInvariant().Where(static c => char.IsLetterOrDigit(c) || c is ' ' or '-' or '_')).Replace(' ', '-');

    [GeneratedRegex("^```.*?^```", RegexOptions.Multiline | RegexOptions.Singleline)]
    private static partial Regex Fence();

    [GeneratedRegex("`([^`\n]+)`")]
    private static partial Regex Span();

    [GeneratedRegex(@"\]\(([^)\s]+)\)")]
    private static partial Regex Link();

    [GeneratedRegex("^#+ (.+)$", RegexOptions.Multiline)]
    private static partial Regex Heading();

    [GeneratedRegex(@"^[\w.*-]+(/[\w.*-]+)*/?$")]
    private static partial Regex PathText();

    // Type, Type.Member, or the beginning of either: Type.Method_Condition_...
    [GeneratedRegex(@"^[A-Z][A-Z0-9_]*[a-z]\w*(\.\w+)*(\.\.\.)?$")]
    private static partial Regex CodeName();

    [GeneratedRegex("^[a-z]+(-[a-z]+)+$")]
    private static partial Regex HyphenatedName();

    [GeneratedRegex(@"\w+(?:[-.]\w+)*")]
    private static partial Regex Word();

    [GeneratedRegex(@"\b(?:class|struct|interface|enum|record|message|service)\s+(\w+)")]
    private static partial Regex Declaration();

    [GeneratedRegex(@"(?<!:)//[^\n]*")]
    private static partial Regex Comment();

    /// <summary>The words of the sources without comments, and for each type those of the files that declare it.</summary>
    private sealed class Names
    {
        private readonly HashSet<string> _words = [];
        private readonly HashSet<string> _identifiers = [];
        private readonly Dictionary<string, HashSet<string>> _byType = [];

        public Names(IEnumerable<string> files)
        {
            foreach (var file in files.Where(static file => !IsDocument(file)))
            {
                var isSource = SourceTypes.Contains(Path.GetExtension(file), StringComparer.Ordinal);
                var text = isSource ? Comment().Replace(House.Read(file), "") : House.Read(file);
                var words = Word().Matches(text).Select(static word => word.Value).ToHashSet();
                _words.UnionWith(words);
                // A script, or a mistake of tests/nightly/mutations, is named by its file.
                if (!Path.HasExtension(file))
                    _words.Add(Path.GetFileName(file));
                if (!isSource)
                    continue;
                var identifiers = words.SelectMany(static word => word.Split('.', '-')).ToHashSet();
                _identifiers.UnionWith(identifiers);
                foreach (var type in Declaration().Matches(text).Select(static type => type.Groups[1].Value))
                {
                    if (!_byType.TryGetValue(type, out var inFile))
                        _byType[type] = inFile = [];
                    inFile.UnionWith(identifiers);
                }
            }
        }

        public bool Contain(string name)
        {
            if (_words.Contains(name))
                return true;
            var isBeginning = name.EndsWith("...", StringComparison.Ordinal);
            var parts = (isBeginning ? name[..^3] : name).Split('.');
            if (parts.Length == 1)
                return Contains(_identifiers, parts[0], isBeginning);
            return _byType.TryGetValue(parts[^2], out var members) && Contains(members, parts[^1], isBeginning);
        }

        private static bool Contains(HashSet<string> names, string name, bool isBeginning) =>
            isBeginning ? names.Any(one => one.StartsWith(name, StringComparison.Ordinal)) : names.Contains(name);
    }
}
