using System.Text;
using System.Text.RegularExpressions;

namespace KvCluster.Tests.House;

/// <summary>Rules of the build that the compiler cannot check.</summary>
public sealed partial class BuildRuleTests
{
    private const int Columns = 160;

    // Texts that tests compare with others line by line, and lines that are those of another file.
    private static readonly string[] NotFlowed = ["helm/kvcluster/templates/", "tests/KvCluster.Tests/Deploy/golden/", "tests/nightly/mutations/"];

    private static readonly string[] Core =
        ["node/Storage/KvCluster.Storage.csproj", "node/Storage/Embedded/KvCluster.Storage.Embedded.csproj", "node/Replication/KvCluster.Replication.csproj"];

    [Fact]
    public void UnsafeCode_OutsideTests_IsOnlyInStorage() =>
        Assert.Equal(["node/Storage/Embedded/KvCluster.Storage.Embedded.csproj", "node/Storage/KvCluster.Storage.csproj"], House.Projects()
            .Where(project => !project.StartsWith("tests/", StringComparison.Ordinal) && House.ReadXml(project).Descendants("AllowUnsafeBlocks").Any()));

    [Fact]
    public void BannedSymbols_InTheCore_AreReferencedAndErrors()
    {
        foreach (var project in Core)
        {
            var xml = House.ReadXml(project);
            var list = string.Concat(Enumerable.Repeat("../", project.Count(static c => c == '/'))) + "BannedSymbols.Core.txt";
            Assert.Contains(xml.Descendants("PackageReference"), item => (string?)item.Attribute("Include") == "Microsoft.CodeAnalysis.BannedApiAnalyzers");
            Assert.Contains(xml.Descendants("AdditionalFiles"), item => (string?)item.Attribute("Include") == list);
        }

        Assert.Contains("dotnet_diagnostic.RS0030.severity = error", House.Read(".editorconfig"), StringComparison.Ordinal);
        var banned = House.Read("BannedSymbols.Core.txt");
        foreach (var symbol in (string[])["System.DateTime.UtcNow",
            "System.Diagnostics.Stopwatch", "System.Random", "System.Guid.NewGuid", "System.IO.File", "System.IO.RandomAccess"])
            Assert.Matches($"(?m)^[TPM]:{Regex.Escape(symbol)};", banned);
    }

    /// <summary>
    /// The real file system behind IFileSystem is the only place of the core that uses a disk. Users of the embedded store get the system's clock unless they
    /// pass another one.
    /// </summary>
    [Fact]
    public void BannedSymbols_AreSuppressed_OnlyByTheRealFileSystemAndForTheDefaultClock() =>
        Assert.DoesNotContain(Sources("node/Storage/", "node/Replication/"),
            path => !path.StartsWith("node/Storage/Files/", StringComparison.Ordinal)
                && path != "node/Storage/Embedded/KvStoreOptions.cs" && House.Read(path).Contains("RS0030", StringComparison.Ordinal));

    /// <summary>A setting that a newer runtime does not know has no effect, and nothing says so.</summary>
    [Theory]
    // An idle node wakes few threads with these.
    [InlineData("node/Server/KvCluster.Node.csproj", "System.Threading.ThreadPool.UnfairSemaphoreSpinLimit")]
    [InlineData("node/Server/KvCluster.Node.csproj", "System.Net.SocketsHttpHandler.Http2FlowControl.DisableDynamicWindowSizing")]
    // And it has less machine code with this one, which the runtime's own library reads.
    [InlineData("node/Server/KvCluster.Node.csproj", "System.Runtime.TieredCompilation.CallCountThreshold")]
    // A watch without room receives no more than the window of its stream, which stays as it is with this.
    [InlineData("router/KvCluster.Router.csproj", "System.Net.SocketsHttpHandler.Http2FlowControl.DisableDynamicWindowSizing")]
    public void RuntimeSettings_AreKnownToTheRuntime(string project, string needed)
    {
        var settings = House.ReadXml(project).Descendants("RuntimeHostConfigurationOption");
        var names = settings.Select(item => (string)item.Attribute("Include")!).ToList();
        Assert.Contains(needed, names);
        var runtime = Path.GetDirectoryName(typeof(object).Assembly.Location)!;
        var files = ((Type[])[typeof(object), typeof(HttpClient)]).Select(type => type.Assembly.Location).Concat(Directory.GetFiles(runtime, "*coreclr.*"));
        var known = files.Select(File.ReadAllBytes).ToList();
        Assert.All(names, name => Assert.Contains(known, file => file.AsSpan().IndexOf(Encoding.Unicode.GetBytes(name)) >= 0));
    }

    [Fact]
    public void PackageVersions_AreAllCentral_AndAllUsed()
    {
        var central = House.ReadXml("Directory.Packages.props").Descendants("PackageVersion").Select(item => (string)item.Attribute("Include")!).ToHashSet();
        var buildFiles = House.TextFiles().Where(path => Path.GetExtension(path) is ".csproj" or ".props" or ".targets");
        var references = buildFiles.SelectMany(path => House.ReadXml(path).Descendants("PackageReference").Select(item => (Path: path, Item: item))).ToList();
        Assert.Empty(
            references.Where(one => one.Item.Attribute("Version") is not null || one.Item.Attribute("VersionOverride") is not null).Select(one => one.Path));
        Assert.Equal(central.Order(), references.Select(one => (string)one.Item.Attribute("Include")!).Distinct().Order());
    }

    /// <summary>The types of these packages are public, so a program that uses the library has their versions in common with it.</summary>
    [Fact]
    public void GrpcVersions_OfTheClientLibrary_AreInItsReadme()
    {
        var central = House.ReadXml("Directory.Packages.props").Descendants("PackageVersion")
            .ToDictionary(item => (string)item.Attribute("Include")!, item => (string)item.Attribute("Version")!);
        var brought = House.ReadXml("proto/Contract/KvCluster.Proto.csproj").Descendants("PackageReference")
            .Where(item => (string?)item.Attribute("PrivateAssets") != "all").Select(item => (string)item.Attribute("Include")!);
        var named = VersionRow().Matches(House.Read("client/README.md")).Select(row => (row.Groups[1].Value, row.Groups[2].Value));
        Assert.Equal(brought.Select(name => (name, central[name])).Order(), named.Order());
    }

    [Fact]
    public void Texts_NameNoMachinePaths() =>
        Assert.Empty(House.TextFiles()
            .SelectMany(path => House.Read(path).Split('\n').Select((line, index) => (Line: line, Where: $"{path}:{index + 1}")))
            .Where(one => MachinePath().IsMatch(one.Line))
            .Select(one => $"{one.Where}: {one.Line.Trim()}"));

    [Fact]
    public void Sources_ContainNoTodo() =>
        Assert.DoesNotContain(Sources("proto/", "node/", "client/", "router/", "deploy/", "tests/"), path => LeftForLater().IsMatch(House.Read(path)));

    /// <summary>
    /// The first use of one descriptor builds those of all messages and, by reflection, accessors of all their fields. A program's first call must not wait for
    /// that. The packages' methods for details of errors use them, too.
    /// </summary>
    [Fact]
    public void Client_UsesNoDescriptors() =>
        Assert.DoesNotContain(Sources("proto/Contract/", "proto/Tls/", "client/"), static path => Descriptors().IsMatch(House.Read(path)));

    /// <summary>
    /// Of scripts and settings only the comments count. What cannot be broken may be longer: the lines of a raw string, tables, fenced blocks, headings, and a
    /// link or a command in backticks that is too long by itself.
    /// </summary>
    [Fact]
    public void Lines_HaveAtMost160Columns()
    {
        // Assert.Empty would truncate the list.
        var found = string.Join('\n', House.TextFiles()
            .Where(static path => !NotFlowed.Any(folder => path.StartsWith(folder, StringComparison.Ordinal))).SelectMany(LongLines));
        Assert.True(found.Length == 0, found);
    }

    private static IEnumerable<string> LongLines(string path)
    {
        var text = Path.GetExtension(path) switch
        {
            ".cs" => Without(RawString(), path),
            ".md" => Without(NoProse(), path),
            ".proto" => House.Read(path),
            "" or ".sh" or ".yaml" or ".yml" => Without(NoComment(), path),
            _ => "",
        };
        return text.Split('\n').Select((line, index) => (Line: line, Where: $"{path}:{index + 1}"))
            .Where(static one => one.Line.Length > Columns && !Word().Matches(one.Line).Any(static word => word.Length > Columns - 20))
            .Select(static one => $"{one.Where}: {one.Line.Trim()}");
    }

    // The numbers of the other lines stay.
    private static string Without(Regex part, string path) => part.Replace(House.Read(path), static found => new string('\n', found.ValueSpan.Count('\n')));

    private static IEnumerable<string> Sources(params string[] folders) => House.TextFiles()
        .Where(path => path.EndsWith(".cs", StringComparison.Ordinal) && folders.Any(folder => path.StartsWith(folder, StringComparison.Ordinal)));

    // Written so that this file does not match itself.
    [GeneratedRegex(@"(?<![\w.$}])/(?:work|root|home|Users|tmp)/|[A-Z]:\\(?:Users|Windows)")]
    private static partial Regex MachinePath();

    [GeneratedRegex(@"^\| `([\w.]+)` \| ([0-9.]+) \|$", RegexOptions.Multiline)]
    private static partial Regex VersionRow();

    [GeneratedRegex(@"\.Descriptor\b|\bGetDetail<|\bAny\.Pack\(|\bUnpack<")]
    private static partial Regex Descriptors();

    // Of several lines. In a verbatim string three quotes are something else.
    [GeneratedRegex(@"(?<![""@])(""{3,})[^\S\n]*\n.*?\n[^\S\n]*\1", RegexOptions.Singleline)]
    private static partial Regex RawString();

    [GeneratedRegex("^ *```.*?^ *```[^\n]*|^ *[|#<][^\n]*", RegexOptions.Multiline | RegexOptions.Singleline)]
    private static partial Regex NoProse();

    [GeneratedRegex("^(?! *#)[^\n]+", RegexOptions.Multiline)]
    private static partial Regex NoComment();

    // A text in backticks and a tag are each one word.
    [GeneratedRegex(@"(?:`[^`\n]*`|<[^<>\n]*>|\S)+")]
    private static partial Regex Word();

    [GeneratedRegex(@"\b(?:TO(?:)DO|FIX(?:)ME|NotImplemented(?:)Exception)\b")]
    private static partial Regex LeftForLater();
}
